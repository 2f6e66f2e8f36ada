"""`Scores`: what members of a step draw by."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from thothy_ai.engine.execution.transfers import send


class Scores(NamedTuple):
    """`logits` [R, vocab], the `rows` [R] int64 that the members sample for, and the `positions` [R] int64 that the
    drawn tokens go to.
    """

    logits: Tensor
    rows: Tensor
    positions: Tensor

    @classmethod
    def buffers(cls, logits: Tensor) -> Scores:
        """Buffers of as many members as `logits` [R, vocab], which is one of them."""
        return cls(logits, *torch.zeros(2, len(logits), dtype=torch.int64, device=logits.device))

    def first(self, members: int) -> Scores:
        """Those of the first members: views."""
        return Scores(*(column[:members] for column in self))

    def of(self, members: NDArray[np.bool_]) -> Scores:
        """Those of the members that are marked [R]: copies."""
        places = send(np.flatnonzero(members).astype(np.int32), self.rows.device).to(torch.int64)
        return Scores(*(column.index_select(0, places) for column in self))
