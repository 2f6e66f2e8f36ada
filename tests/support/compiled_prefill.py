"""Run as a program: compiles the prefill kernel over latents for GPUs that need not be there, and prints the shared
memory of each.

Not under TRITON_INTERPRET, which leaves nothing to compile. Arguments, each a JSON list: the architecture, such as 86,
and the tiling's rows, keys, warps and stages.
"""

from __future__ import annotations

import json
import sys

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from thothy_ai.kernels.triton.attention.prefill_kernel import prefill_kernel

HEADS, LATENT, REST, PAGE = 20, 512, 64, 32  # GLM-4.7-Flash's
ALIGNED = {"out", "q", "keys", "values", "out_token", "out_head", "q_token", "q_head", "kv_block", "kv_slot", "kv_head"}


def shared_bytes(architecture: int, rows: int, keys: int, warps: int, stages: int) -> int:
    """Of one program of the kernel, in bfloat16."""
    constants = {
        "KV_HEADS": 1,
        "HEADS": HEADS,
        "DIM": LATENT,
        "DIM_PAD": LATENT,
        "REST": REST,
        "REST_PAD": REST,
        "PAGE": PAGE,
        "ROWS": rows,
        "KEYS": keys,
        "WINDOW": None,
        "CHUNKED": False,
        "SOFT_CAP": None,
        "sinks": None,
        "key_scales": None,
        "value_scales": None,
    }
    types = dict.fromkeys(("out", "q", "keys", "values"), "*bf16") | dict.fromkeys(constants, "constexpr")
    types |= dict.fromkeys(("block_tables", "rows", "tiles"), "*i32") | {"scale": "fp32"}
    names = prefill_kernel.arg_names
    source = ASTSource(
        fn=prefill_kernel,
        signature={name: types.get(name, "i32") for name in names},
        constexprs={(names.index(name),): value for name, value in constants.items()},
        attrs={(place,): [["tt.divisibility", 16]] for place, name in enumerate(names) if name in ALIGNED},
    )
    options = {"num_warps": warps, "num_stages": stages}
    return triton.compile(source, target=GPUTarget("cuda", architecture, 32), options=options).metadata.shared


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        sys.stdout.write(f"{shared_bytes(*json.loads(argument))}\n")
