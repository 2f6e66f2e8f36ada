"""Integer weights of 4 or 8 bits with a scale, and perhaps a zero point or an offset, for each group of inputs of each
output."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

LANES = (32, 16)  # words of a span that kernels take: the fewer for groups of 32; groups of 16 have 8
SMALLEST_GROUP = 2 * min(LANES)  # but for those


@dataclass(frozen=True, slots=True)
class GroupedInts:
    """A weight [N, K]: (number - zero) * scale, or number * scale + offset.

    `words` [N, S * lanes] int32 hold S spans of 32 / bits * lanes inputs; inputs past K are there but count for
    nothing. Of each word of a span, numbers j (from the lowest bits on) and j + 16 / bits are neighbours: those of
    inputs j * 2 * lanes + 2 * w and the next one, where w is the word's place in the span. So one shift and one mask
    leave two numbers in the halves of a word, as tensor cores take them.

    `factors` [G, N] are scales, if all zeros are 2 ** (bits - 1). Otherwise they are integers, int64 if scales are
    float32 and else int32, whose lower halves are the bits of scales of `scale_type` and whose upper halves are zeros
    or, if `offsets`, the bits of offsets of that type. A `group` is a power-of-two multiple of 2 * lanes inputs, or a
    whole row; G counts those of all spans.
    """

    words: Tensor
    factors: Tensor
    scale_type: torch.dtype
    bits: int
    lanes: int
    group: int
    inputs: int
    offsets: bool = False

    @property
    def outputs(self) -> int:
        return len(self.words)

    @property
    def span(self) -> int:
        return 32 // self.bits * self.lanes

    @property
    def spans(self) -> int:
        return self.words.shape[1] // self.lanes

    @property
    def num_bytes(self) -> int:
        return self.words.nbytes + self.factors.nbytes

    @property
    def symmetric(self) -> bool:
        """Whether all zeros are in the middle."""
        return self.factors.is_floating_point()


def suited_lanes(inputs: int, bits: int, group: int) -> int:
    """The most words that let groups begin with a slice, among those whose spans are filled best."""
    if group < SMALLEST_GROUP:
        return group // 2
    span = 32 // bits
    fitting = [lanes for lanes in LANES if 2 * lanes <= group]
    return min(fitting, key=lambda lanes: (-inputs % (span * lanes), -lanes))
