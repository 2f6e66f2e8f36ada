"""Scales queries with their position, so that attention stays sharp in long contexts."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from thothy_ai.engine.models.builder import ModelBuilder


@dataclass(frozen=True, slots=True)
class QueryGrowth:
    """Queries are multiplied by 1 + `rate` * log(1 + place // `step`), where place = position + `first`."""

    rate: float
    step: int
    first: int = 0

    def held(self, build: ModelBuilder) -> Tensor | None:
        """The factor of each position [max_context] float32, for all layers; None if all are 1."""
        end = self.first + build.shape.max_context
        if not self.rate or end <= self.step:
            return None
        steps = torch.arange(self.first, end, dtype=torch.float32).div(self.step).floor()
        return build.held(steps.log1p().mul(self.rate).add(1).to(build.embedding.device))


NO_GROWTH = QueryGrowth(0.0, 1)
