"""Run as a program: compiles the kernels of recurrent layers for an H100 that need not be there, and prints what of its
shared memory a program of each takes.

Not under TRITON_INTERPRET, which leaves nothing to compile. Arguments: each a model's type and the size of a head, such
as float32:12.
"""

from __future__ import annotations

import sys

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from thothy_ai.kernels.triton.states import convolution, copies, delta_rule, gated_norms, state_spaces
from thothy_ai.kernels.triton.states.members import CHUNK, DECODE_VALUES

FLOATS = {"float32": "*fp32", "bfloat16": "*bf16"}
HOPPER = 90
PLACES = ("rows", "ends", "starts", "keeps", "sources", "targets")
UNALIGNED = {*PLACES, "members", "tokens", "slots"}


def shared_bytes(dtype: str, size: int) -> dict[str, int]:
    """Of one program of each kernel."""
    exact, width = dtype == "float32", triton.next_power_of_2(max(size, 16))
    own = ("mixed", "learned", "forgotten", "solved", "scores", "steps", "x", "weight", "inputs", "gate")
    types = dict.fromkeys(own, FLOATS[dtype]) | dict.fromkeys(PLACES, "*i32") | {"eps": "fp32"}
    types |= dict.fromkeys(("rate", "offset", "skip", "memory", "stack", "out", "factors"), "*fp32")
    heads = {"KEY_HEADS": 2, "HEADS": 4, "VALUES": size, "KEYS": size, "WIDTH": width}
    spaces = {**heads, "GROUPS": 2}
    decode, chunked = {"BLOCK": min(DECODE_VALUES, width)}, {"CHUNK": CHUNK, "EXACT": exact}
    delta = {**heads, **chunked, "BLOCK": min(delta_rule._SCAN_VALUES, width)}
    scanned = {**spaces, **chunked, "BLOCK": min(state_spaces._SCAN_VALUES, width)}
    channels = {"CHANNELS": 4 * size, "WIDTH": 4, "BLOCK": convolution._CHANNELS, "bias": None, "SILU": True}
    channels |= {"OF_CHANNEL": 1, "OF_TAP": 4 * size}
    cases = [
        (delta_rule._delta_kernel, {**heads, **decode}, 1, 3),
        (delta_rule._systems_kernel, delta, 4, 3),
        (delta_rule._scan_kernel, delta, 4, 1 if exact else 2),
        (state_spaces._space_kernel, {**spaces, **decode}, 1, 3),
        (state_spaces._space_scan_kernel, scanned, 4, 1 if exact else 2),
        (convolution._convolve_kernel, channels, 1, 3),
        (convolution._convolve_longer_kernel, {**channels, "TOKENS": convolution._TOKENS}, 1, 3),
        (convolution._keep_inputs_kernel, channels, 1, 3),
        (copies._copy_kernel, {"SIZE": size, "BLOCK": copies._BLOCK}, 4, 3),
        (gated_norms._gated_rms_norm_kernel, {"HEADS": 4, "SIZE": size, "SOME": 4, "WIDTH": width}, 4, 3),
        (gated_norms._gate_rms_norm_kernel, {"SIZE": size, "WIDTH": width}, 4, 3),
    ]
    return {kernel.__name__: _compiled(kernel, types, *settings) for kernel, *settings in cases}


def _compiled(kernel, types, constants, warps, stages) -> int:
    names = kernel.arg_names
    constants = {name: value for name, value in constants.items() if name in names}
    source = ASTSource(
        fn=kernel,
        signature={name: "constexpr" if name in constants else types.get(name, "i32") for name in names},
        constexprs={(names.index(name),): value for name, value in constants.items()},
        attrs={
            (place,): [["tt.divisibility", 16]]
            for place, name in enumerate(names)
            if name not in constants and name not in UNALIGNED and types.get(name) != "fp32"
        },
    )
    options = {"num_warps": warps, "num_stages": stages}
    return triton.compile(source, target=GPUTarget("cuda", HOPPER, 32), options=options).metadata.shared


if __name__ == "__main__":
    for model in sys.argv[1:]:
        dtype, _, size = model.partition(":")
        for name, taken in shared_bytes(dtype, int(size)).items():
            sys.stdout.write(f"{model}:{name} {taken}\n")
