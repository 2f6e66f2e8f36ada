"""Integer weights of 4 or 8 bits with a scale, and perhaps a zero point, for each group of inputs of each output."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

LANES = 32  # words of a span: the fewest inputs that share a scale, and what a warp loads at once


@dataclass(frozen=True, slots=True)
class GroupedInts:
    """A weight [N, K]: (number - zero) * scale.

    `words` [N, S * 32] int32 hold S spans of 32 * (32 / bits) inputs; inputs past K are there but count for nothing.
    Number j of a word, counted from its lowest bits, is that of input j * 32 of the word's span plus the word's place
    in the span: 32 neighbouring words give 32 neighbouring inputs with one shift.

    `scales` [G, N] floating-point and `zeros` [G, N] uint8, none where all are 2 ** (bits - 1). A `group` is a
    power-of-two multiple of 32 inputs, or a whole row; G counts those of all spans.
    """

    words: Tensor
    scales: Tensor
    zeros: Tensor | None
    bits: int
    group: int
    inputs: int

    @property
    def outputs(self) -> int:
        """N."""
        return len(self.words)

    @property
    def numbers_per_word(self) -> int:
        """32 / bits."""
        return 32 // self.bits

    @property
    def num_bytes(self) -> int:
        """What it holds."""
        zeros = 0 if self.zeros is None else self.zeros.nbytes
        return self.words.nbytes + self.scales.nbytes + zeros


def span_of(bits: int) -> int:
    """Inputs of a span."""
    return LANES * (32 // bits)
