"""How `skinny_matmul` is cut into tiles for the GPU, as set by measurement."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from thothy_ai.kernels.triton.sms import RESERVED, SMs
from thothy_ai.kernels.triton.tiles import power_of_two

MAX_ROWS = 128
OUTPUTS = 64  # rows of the weight per program: the tensor cores' minimum
_MIN_TOKENS = 16  # the tensor cores' minimum
_STEP = 128
_MAX_DEPTH = 8
_SHARED = {MAX_ROWS: 192 << 10}  # bytes: one program on an SM
_SHARED_BY_TWO = 96 << 10


class MatmulTile(NamedTuple):
    """How a matmul is cut and compiled.

    A program has `outputs` rows of the weight and `tokens`, a power of two. It takes `step` numbers of each at a time,
    loads `stages` steps ahead, and takes one of about `split` parts of the inner dimension.
    """

    outputs: int
    tokens: int
    step: int
    split: int
    stages: int
    warps: int = 4


MANY = MatmulTile(outputs=128, tokens=128, step=128, split=1, stages=3, warps=8)  # if cuBLAS has no such matmul
# For scales by block, which need registers: two such programs fit an SM.
MANY_IN_BLOCKS = MatmulTile(outputs=64, tokens=128, step=128, split=1, stages=3)


def suited(rows: int, outputs: int, sms: SMs) -> MatmulTile | None:
    """The tile for this number of rows, or None if cuBLAS is as fast (H200, benchmarks/kernels/layers.py)."""
    if rows > MAX_ROWS:
        return None
    return _suited(power_of_two(rows, _MIN_TOKENS), outputs, sms)


def suited_to_blocks(rows: int, outputs: int, sms: SMs) -> MatmulTile:
    """The tile for this number of rows and a weight with scales by block, which cuBLAS lacks on some GPUs."""
    return suited(rows, outputs, sms) or MANY_IN_BLOCKS


@cache
def _suited(tokens: int, outputs: int, sms: SMs) -> MatmulTile | None:
    """One program per SM reads fastest. A weight that gives each SM several tiles fills the GPU without
    splitting; unless the rows are few, the result for it is None.
    """
    tiles = -(-outputs // OUTPUTS)
    if tokens == MAX_ROWS and tiles > sms.count:
        return None
    memory = min(_SHARED.get(tokens, _SHARED_BY_TWO), sms.shared_of_program - RESERVED)
    stages = min(_MAX_DEPTH, memory // ((OUTPUTS + tokens) * _STEP))
    return MatmulTile(OUTPUTS, tokens, _STEP, max(1, sms.count // tiles), stages)
