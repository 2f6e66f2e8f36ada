"""What a decoder layer computes with beside its weights."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from thothy_ai.kernels.operations import Operations
from thothy_ai.kernels.paged import Attention, LayerCache
from thothy_ai.kernels.step import StepTokens


class LayerContext(NamedTuple):
    """One layer's share of a step of T tokens.

    `attention` has planned the step, `cache` is this layer's. `wanted` [R] int64 are the tokens that go on after
    attention, in the last layer of a step that does not need all of them; None: all.
    """

    operations: Operations
    tokens: StepTokens
    attention: Attention
    cache: LayerCache
    wanted: Tensor | None = None

    def keep_wanted(self, x: Tensor) -> Tensor:
        """The rows of x [T, ...] that go on [R, ...]."""
        return x if self.wanted is None else x.index_select(0, self.wanted)
