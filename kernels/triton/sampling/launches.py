"""What launches of the sampling kernels share: the tiles of a row, their division over programs, and the arguments."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from thothy_ai.kernels.sampling import SamplingBatch

PARTS = 32  # most programs of a row
PROGRAMS = 2640  # enough for 132 SMs, which hold four or five at once, to finish together


@dataclass(frozen=True)
class Tile:
    """`lines` of `line` adjacent tokens that a program reads at a time, and its warps."""

    lines: int
    line: int
    warps: int

    @property
    def tokens(self) -> int:
        """How many tokens that is."""
        return self.lines * self.line

    def count(self, vocab_size: int) -> int:
        """How many a row has."""
        return -(-vocab_size // self.tokens)


CHOOSING = Tile(lines=512, line=8, warps=8)
FILTERING = Tile(lines=1024, line=8, warps=32)


def division(pieces: int, members: int, programs: int = PROGRAMS) -> tuple[int, int]:
    """How many programs share a row of so many pieces, and how many pieces each reads, where `programs` are enough for
    all rows.
    """
    each = -(-pieces // min(PARTS, -(-programs // members)))
    return -(-pieces // each), each


def words_of(vocab_size: int) -> int:
    """32-bit words of a bit for each token."""
    return -(-vocab_size // 32)


def row_arguments(step: SamplingBatch, seen: Tensor | None) -> tuple[Tensor | int | None, ...]:
    """Logits, bits of allowed and of seen tokens, rows, parameters; a row's stride, tokens, and words."""
    vocab_size = step.logits.shape[1]
    return (
        step.logits,
        step.bitmask,
        seen,
        step.rows,
        step.table,
        step.logits.stride(0),
        vocab_size,
        words_of(vocab_size),
    )
