"""What a decoder layer computes with beside its weights."""

from __future__ import annotations

from typing import NamedTuple

from thothy_ai.kernels.operations import Operations
from thothy_ai.kernels.paged import Attention, LayerCache
from thothy_ai.kernels.step import StepTokens


class LayerContext(NamedTuple):
    """One layer's share of a step of T tokens. `attention` has planned the step, `cache` is this layer's."""

    operations: Operations
    tokens: StepTokens
    attention: Attention
    cache: LayerCache
