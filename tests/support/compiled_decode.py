"""Run as a program: compiles the decode kernel for GPUs that need not be there, and prints the shared memory of each.

Not under TRITON_INTERPRET, which leaves nothing to compile. Arguments, each a JSON list: the architecture, such as 86;
head size and type of queries; whether the cache is fp8; the tuning's tile, ahead, warps and registers (None: as many as
there are); numbers of a key beside those that are its value (None: values are apart).
"""

from __future__ import annotations

import json
import sys

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from thothy_ai.kernels.triton.attention.decode_kernel import decode_kernel

HEADS, KV_HEADS, PAGE, GROUP_ROWS = 4, 8, 32, 8
FLOATS = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}
ALIGNED = {"out", "q", "keys", "values", "key_scales", "value_scales", "partial_outputs", "partial_lse"}
ALIGNED |= {"out_token", "out_head", "q_token", "q_head", "kv_block", "kv_slot", "kv_head", "scale_block"}


def shared_bytes(
    architecture: int, dim: int, dtype: str, fp8: bool, tile: int, ahead: int, warps: int, registers: int | None,
    rest: int | None,
) -> int:  # fmt: skip
    """Of one program of the kernel."""
    number, stored = "*" + FLOATS[dtype], "*fp8e4nv" if fp8 else "*" + FLOATS[dtype]
    pointers = {"out": number, "q": number, "keys": stored, "values": stored}
    pointers |= dict.fromkeys(("partial_outputs", "partial_lse"), "*fp32")
    constants = {
        "KV_HEADS": KV_HEADS,
        "HEADS": HEADS,
        "HEADS_PAD": HEADS,
        "DIM": dim,
        "DIM_PAD": triton.next_power_of_2(dim),
        "REST": rest,
        "REST_PAD": rest or 16,
        "PAGE": PAGE,
        "TILE": tile,
        "AHEAD": ahead,
        "GROUP_ROWS": GROUP_ROWS,
        "WINDOW": None,
        "CHUNKED": False,
        "SOFT_CAP": None,
        "sinks": None,
        "group_skipped": None,
        "scale_head": 1,
    }
    if fp8:
        pointers |= {"key_scales": "*fp32", "value_scales": "*fp32"}
    else:
        constants |= {"key_scales": None, "value_scales": None}
    names = decode_kernel.arg_names
    integers = dict.fromkeys(names[names.index("block_tables") : names.index("out_token")], "*i32")
    types = integers | pointers | {"scale": "fp32"} | dict.fromkeys(constants, "constexpr")
    source = ASTSource(
        fn=decode_kernel,
        signature={name: types.get(name, "i32") for name in names},
        constexprs={(names.index(name),): value for name, value in constants.items()},
        attrs={
            (place,): [["tt.divisibility", 16]]
            for place, name in enumerate(names)
            if name in ALIGNED and name not in constants
        },
    )
    options = {"num_warps": warps, **({"maxnreg": registers} if registers else {})}
    return triton.compile(source, target=GPUTarget("cuda", architecture, 32), options=options).metadata.shared


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        sys.stdout.write(f"{shared_bytes(*json.loads(argument))}\n")
