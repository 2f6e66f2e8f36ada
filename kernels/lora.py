"""Adapters of a linear layer (LoRA: Hu et al., 2021): y += B (A x), with A and B from each token's adapter.

Adapters are like a mixture of experts of which each token has one or none, and tokens are sorted in the same way.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

RANK_MULTIPLE = 16  # ranks are padded to what tensor cores multiply at a time
MAX_SPLITS = 16  # summands of A x
COLUMNS = 512  # outputs of a block
_MAX_UNIT = 16  # numbers; more are never loaded at once


class AdapterTokens(NamedTuple):
    """A pass's tokens, sorted by slot. `order` [T] int32: the tokens of slot 0, of slot 1 and so on; those that have no
    adapter come last, as if they had one more slot. `tiles` [3, N] int32: a slot, and where in the order some of its
    tokens begin and end; a tile without tokens ends where it begins. A tile has at most `rows` tokens.
    """

    order: Tensor
    tiles: Tensor
    rows: int


class OutputBlocks(NamedTuple):
    """A layer's outputs, at most `COLUMNS` to a block. `table` [3, N] int32: a block's part, its first output and the
    one after its last, both divided by `unit`, the number of outputs that kernels can load at once.
    """

    table: Tensor
    unit: int


class AdapterWeights(NamedTuple):
    """A layer's weights of S adapters: `a` [S, parts * R, in], `b` [S, out, R], and the `ranks` [S + 1] int32 up to
    which they are not zero; 0 for an adapter that leaves the layer as it is, and behind the last slot.

    The outputs of a merged layer have a part of `a` each, and are divided into `blocks`.
    """

    a: Tensor
    b: Tensor
    ranks: Tensor
    blocks: OutputBlocks

    @property
    def rank(self) -> int:
        """R, which is a multiple of `RANK_MULTIPLE`."""
        return self.b.shape[2]


class Shrunk(NamedTuple):
    """A x of a layer's inputs, which B has still to multiply: its summands `low` [splits, T, parts * R] float32, which
    are written for tokens that have an adapter.
    """

    low: Tensor
    weights: AdapterWeights
    tokens: AdapterTokens


def output_blocks(rows: list[int], device: torch.device) -> OutputBlocks:
    """The blocks of a layer whose parts have so many outputs."""
    unit, blocks, begin = math.gcd(_MAX_UNIT, *rows), [], 0
    for part, count in enumerate(rows):
        end = begin + count
        blocks += [(part, first // unit, min(first + COLUMNS, end) // unit) for first in range(begin, end, COLUMNS)]
        begin = end
    return OutputBlocks(torch.tensor(blocks, dtype=torch.int32, device=device).t().contiguous(), unit)
