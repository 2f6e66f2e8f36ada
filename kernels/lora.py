"""Adapters of a linear layer (LoRA: Hu et al., 2021): y += B (A x), with A and B from each token's adapter.

Adapters are like a mixture of experts of which each token has one or none, and tokens are sorted in the same way.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

RANK_MULTIPLE = 16  # ranks are padded to what tensor cores multiply at a time
MAX_SPLITS = 8  # summands of A x
COLUMNS = 128  # outputs per program of an expansion


class AdapterTokens(NamedTuple):
    """A pass's tokens, sorted by slot. `order` [T] int32: the tokens of slot 0, of slot 1 and so on; those that have no
    adapter are nowhere in it. `tiles` [3, N] int32: a slot, and where in the order some of its tokens begin and end; a
    tile without tokens ends where it begins.
    """

    order: Tensor
    tiles: Tensor


class AdapterWeights(NamedTuple):
    """A layer's weights of S adapters: `a` [S, parts * R, in], `b` [S, out, R], and the `ranks` [S] int32 up to which
    they are not zero; 0 for an adapter that leaves the layer as it is.

    The outputs of a merged layer have a part of `a` each. `blocks` [3, N] int32: a part, and some of its outputs, at
    most `COLUMNS`: the first, and the one after the last.
    """

    a: Tensor
    b: Tensor
    ranks: Tensor
    blocks: Tensor

    @property
    def rank(self) -> int:
        """R, which is a multiple of `RANK_MULTIPLE`."""
        return self.b.shape[2]


def output_blocks(rows: list[int], device: torch.device) -> Tensor:
    """`AdapterWeights.blocks` of a layer whose parts have so many outputs."""
    blocks, begin = [], 0
    for part, count in enumerate(rows):
        blocks += [(part, first, min(first + COLUMNS, begin + count)) for first in range(begin, begin + count, COLUMNS)]
        begin += count
    return torch.tensor(blocks, dtype=torch.int32, device=device).t().contiguous()
