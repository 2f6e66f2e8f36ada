"""CUDA graphs of what follows a decode step's forward pass: tokens are chosen by its logits, and written to the rows.

These are a dozen small kernels. To launch them one by one takes the host half a millisecond, in which the device waits
for a step's masks and then for each launch. Which of them run depends on the number of members and on the draw's kind:
each is captured when it comes for the second time, since the first compiles and loads its kernels. All graphs share one
pool of memory: they never run concurrently.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from thothy_ai.engine.execution.graphs import Captured, capture_graph
from thothy_ai.engine.execution.transfers import send
from thothy_ai.kernels.sampling import Work


class Scores(NamedTuple):
    """What members of a step draw by: `logits` [R, vocab], the `rows` [R] int64 that they sample for, and the
    `positions` [R] int64 that the drawn tokens go to.
    """

    logits: Tensor
    rows: Tensor
    positions: Tensor

    @classmethod
    def like(cls, logits: Tensor) -> Scores:
        """Room for those of as many members, by logits like these."""
        return cls(torch.empty_like(logits), *torch.zeros(2, len(logits), dtype=torch.int64, device=logits.device))

    def first(self, members: int) -> Scores:
        """Those of the first members: views."""
        return Scores(*(column[:members] for column in self))

    def of(self, places: NDArray[np.intp]) -> Scores:
        """Those of the members at these places [P]: copies."""
        sent = send(places.astype(np.int32), self.rows.device).to(torch.int64)
        return Scores(*(column.index_select(0, sent) for column in self))


class DrawKind(NamedTuple):
    """What a draw takes: the kinds of its rows, and whether they have masks."""

    work: Work
    masked: bool


Draw = Callable[[int, DrawKind], Tensor]


class DrawGraphs:
    """Runs `draw(size, kind)`, which returns the tokens [size] that it drew, from buffers that stay in place."""

    def __init__(self, draw: Draw) -> None:
        self._draw = draw
        self._met: set[tuple[int, DrawKind]] = set()
        self._captured: dict[tuple[int, DrawKind], Captured] = {}
        self.replays = 0  # so far

    def run(self, size: int, kind: DrawKind) -> Tensor:
        """Draw; the tokens stay valid until the next draw."""
        known = self._captured.get((size, kind))
        if known is None:
            if (size, kind) not in self._met:
                self._met.add((size, kind))
                return self._draw(size, kind)
            known = self._captured[size, kind] = self._capture(size, kind)
        graph, tokens = known
        graph.replay()
        self.replays += 1
        return tokens

    def _capture(self, size: int, kind: DrawKind) -> Captured:
        if not self._captured:
            self._pool, self._stream = torch.cuda.graph_pool_handle(), torch.cuda.Stream()
        with torch.cuda.stream(self._stream):
            return capture_graph(partial(self._draw, size, kind), self._pool)
