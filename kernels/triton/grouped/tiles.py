"""How the matmul of a few rows and an integer weight is cut for the GPU: the one place that says so, by measurement."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from thothy_ai.kernels.grouped import GroupedInts
from thothy_ai.kernels.triton.sms import SMs
from thothy_ai.kernels.triton.tiles import power_of_two

MAX_ROWS = 128
OUTPUTS = 64  # rows of the weight that a program has: what the tensor cores take at least
_MIN_TOKENS = 16  # that the tensor cores take
_PROGRAMS_OF_SM = 2


class GroupedTile(NamedTuple):
    """How a matmul is cut and compiled.

    A program has `outputs` rows of the weight and `tokens`, a power of two. It takes a span of inputs at a time, loads
    `stages` spans ahead, and takes one of about `split` parts of all spans.
    """

    outputs: int
    tokens: int
    split: int
    stages: int
    warps: int = 4


def suited(rows: int, weight: GroupedInts, sms: SMs) -> GroupedTile | None:
    """The tile for so many rows, or None where dequantizing the weight first is faster (H200,
    benchmarks/kernels/grouped.py).
    """
    if rows > MAX_ROWS:
        return None
    return _suited(power_of_two(rows, _MIN_TOKENS), weight.outputs, sms)


@cache
def _suited(tokens: int, outputs: int, sms: SMs) -> GroupedTile:
    tiles = -(-outputs // OUTPUTS)
    return GroupedTile(OUTPUTS, tokens, max(1, _PROGRAMS_OF_SM * sms.count // tiles), 4)
