"""Layers divided among ranks, whose results are summed over the ranks or gathered."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor
from torch.nn import functional

from thothy_ai.engine.models.layers.linear import Activations, Linear
from thothy_ai.engine.models.ranks import Ranks
from thothy_ai.kernels.experts import Experts


class ReducedLinear:
    """A layer divided by inputs: x [T, share of in] -> [T, out], summed over the ranks; `linear` computes a summand."""

    def __init__(self, linear: Linear, ranks: Ranks) -> None:
        self.linear, self._ranks = linear, ranks
        self.takes_fp8, self.num_bytes = linear.takes_fp8, linear.num_bytes

    def __call__(self, x: Activations) -> Tensor:
        return self._ranks.all_reduce(self.linear(x))


class GatheredLinear:
    """A layer divided by outputs (the last rank can have fewer): x [T, in] -> [T, out] of all ranks."""

    def __init__(self, linear: Linear, outputs: int, ranks: Ranks) -> None:
        self._linear, self._outputs, self._ranks = linear, outputs, ranks
        self._each = -(-outputs // ranks.size)
        self.takes_fp8, self.num_bytes = linear.takes_fp8, linear.num_bytes

    def __call__(self, x: Activations) -> Tensor:
        own = self._linear(x)
        if own.shape[1] < self._each:
            own = functional.pad(own, (0, self._each - own.shape[1]))
        return self._ranks.all_gather(own)[:, : self._outputs].contiguous()


@dataclass(frozen=True, slots=True)
class ReducedExperts:
    """Experts whose inner sizes are divided among the ranks; results are summed."""

    experts: Experts
    ranks: Ranks

    def __call__(self, x: Tensor, expert_ids: Tensor, expert_weights: Tensor) -> Tensor:
        return self.ranks.all_reduce(self.experts(x, expert_ids, expert_weights))


@dataclass(frozen=True, slots=True)
class SharedEmbedding:
    """Token embeddings times `factor`; this rank's `table` begins with row `first` of the whole table."""

    table: Tensor
    first: int
    factor: float
    ranks: Ranks

    def __call__(self, ids: Tensor, /) -> Tensor:
        own = ids - self.first
        others = (own < 0) | (own >= len(self.table))
        embedded = functional.embedding(own.masked_fill_(others, 0), self.table)
        embedded = self.ranks.all_reduce(embedded.masked_fill_(others[:, None], 0.0))
        return embedded if self.factor == 1.0 else embedded.mul_(self.factor)
