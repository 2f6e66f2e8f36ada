"""How the matmul of a few rows and an integer weight is cut for the GPU: the one place that says so, by measurement."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from thothy_ai.kernels.grouped import GroupedInts
from thothy_ai.kernels.triton.sms import RESERVED, SMs
from thothy_ai.kernels.triton.tiles import power_of_two

MAX_ROWS = 256
OUTPUTS = 64  # rows of the weight that a program has: what the tensor cores take at least
_MIN_TOKENS = 16  # that the tensor cores take
_FEW_TOKENS = 64  # more of them have twice the outputs, by which they are loaded half as often
_PROGRAMS_OF_SM = 3
# Warps, and programs of an SM, where two warps are faster: by tokens, factors and lanes. Two warps' tensor cores have
# their results at once, those of four after a wait for each group.
_TWO_WARPS = {
    (16, "words", 16): (2, 4),
    (16, "words", 32): (2, 4),
    (16, "scales", 16): (2, 6),
    (32, "words", 16): (2, 4),
}
_STAGES = (3, 2)
_HALF = 2  # bytes of an activation
_WORD = 4  # bytes of most factors
_FACTORS = 1024  # bytes that a group's factors, of a word each, take in shared memory
MAX_TOKENS_FIRST = {32: 32, 128: 16}  # by group of 4-bit weights: up to this many the kernel `tokens_first` is faster


class GroupedTile(NamedTuple):
    """How a matmul is cut and compiled.

    A program has `outputs` rows of the weight and `tokens`, a power of two. It takes a span of inputs at a time, loads
    `stages` spans ahead, and takes one of about `split` parts of all spans. `tokens_first` names the kernel; there a
    thread has no more than `registers`, if these are not left to the compiler.
    """

    outputs: int
    tokens: int
    split: int
    stages: int
    warps: int = 4
    registers: int | None = None
    tokens_first: bool = False


class _Cut(NamedTuple):
    """How the kernel `tokens_first` is cut and compiled for some tokens, and how many programs an SM then holds."""

    outputs: int
    warps: int
    registers: int | None
    programs: int

    def tiles(self, outputs: int) -> int:
        """Of a weight with so many outputs."""
        return -(-outputs // self.outputs)

    def fills(self, outputs: int, sms: SMs) -> bool:
        """Whether one or two programs for each tile are all that the SMs hold, or nearly."""
        held = sms.count * self.programs
        return any(_NEARLY * held <= parts * self.tiles(outputs) <= held for parts in (1, 2))


_CUTS = {16: _Cut(64, 2, 128, 4), 32: _Cut(128, 4, None, 2)}  # by tokens
_WIDE = _Cut(256, 4, None, 2)  # of 16 tokens: four narrow tiles would load them four times
_NEARLY = 0.8


def suited(rows: int, weight: GroupedInts, sms: SMs) -> GroupedTile | None:
    """The tile for so many rows, or None where dequantizing the weight first is faster (H200,
    benchmarks/kernels/grouped.py).
    """
    if rows > MAX_ROWS:
        return None
    tokens = min(128, power_of_two(rows, _MIN_TOKENS))
    if weight.bits == 4 and tokens <= MAX_TOKENS_FIRST.get(weight.group, 0):
        return tokens_first_tile(tokens, weight.outputs, sms)
    form = "scales" if weight.symmetric else "words"
    groups = 0 if weight.symmetric else max(1, weight.span // weight.group)  # whose factors are loaded ahead
    words = groups * weight.factors.itemsize // _WORD
    return _suited(tokens, rows <= tokens, form, weight.outputs, weight.lanes, weight.span, words, sms)


@cache
def _suited(
    tokens: int, alone: bool, factors: str, outputs: int, lanes: int, span: int, groups: int, sms: SMs
) -> GroupedTile | None:
    """Several programs of an SM wait for each other's numbers to be converted; `alone`: all rows are in one tile."""
    few = tokens <= _FEW_TOKENS
    tile_outputs = OUTPUTS if few else 2 * OUTPUTS
    words, activations = tile_outputs * lanes * 4 + groups * _FACTORS, tokens * span * _HALF
    room = sms.shared_of_program - RESERVED
    stages = [
        each for each in _STAGES if (each - 1) * words + each * activations <= room
    ]  # the matmul reads the latter
    if not stages:
        return None
    warps, programs = _TWO_WARPS.get((tokens, factors, lanes), (4, _PROGRAMS_OF_SM) if few else (8, 1))
    split = max(1, round(sms.count * programs / -(-outputs // tile_outputs))) if alone else 1
    return GroupedTile(tile_outputs, tokens, split, stages[0], warps)


@cache
def tokens_first_tile(tokens: int, outputs: int, sms: SMs) -> GroupedTile:
    """The tile of the kernel `tokens_first` for 16 or 32 tokens; what it loads ahead fits any GPU's shared memory."""
    cut = _WIDE if tokens == _MIN_TOKENS and _WIDE.fills(outputs, sms) else _CUTS[tokens]
    split = max(1, round(sms.count * cut.programs / cut.tiles(outputs)))
    return GroupedTile(cut.outputs, tokens, split, _STAGES[0], cut.warps, cut.registers, tokens_first=True)
