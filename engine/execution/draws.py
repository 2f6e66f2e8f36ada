"""CUDA graphs of the draw after a decode step's forward pass, which chooses tokens and writes them to the rows.

A draw has a dozen small kernels, and six more with top-p. To launch them one by one takes the host 0.3 ms per step or
more, during which the device waits for the step's masks and then for each launch. The set of kernels depends on the
number of members and on the draw's kind. A draw is captured after it has run without a graph about as often as one
capture costs; the total is then at most twice the optimum for a known frequency. All graphs share one memory pool,
since they never run concurrently.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from functools import cached_property, partial
from typing import NamedTuple

import torch
from torch import Tensor

from thothy_ai.engine.api.errors import one_line
from thothy_ai.engine.execution.graphs import capture_graph
from thothy_ai.kernels.sampling import Work

log = logging.getLogger(__name__)

_DRAWS_BEFORE_CAPTURE = 8  # the first compiles and loads kernels, which must not happen in a capture


class DrawKind(NamedTuple):
    """The work of a draw, and whether it has masks."""

    work: Work
    masked: bool


Draw = Callable[[int, DrawKind], Tensor]
_Key = tuple[int, DrawKind]
_Captured = tuple[torch.cuda.CUDAGraph, Tensor]


class DrawGraphs:
    """Runs `draw(size, kind)`, which draws from fixed buffers and returns the tokens [size]."""

    def __init__(self, draw: Draw) -> None:
        self._draw = draw
        self._drawn: Counter[_Key] = Counter()  # runs without a graph
        self._captured: dict[_Key, _Captured | None] = {}  # None: can't be captured
        self.replays = 0  # so far

    def run(self, size: int, kind: DrawKind) -> Tensor:
        """Draw tokens, which stay valid until the next draw."""
        key = size, kind
        if key not in self._captured and self._drawn[key] >= _DRAWS_BEFORE_CAPTURE:
            try:
                with torch.cuda.stream(self._stream):
                    self._captured[key] = capture_graph(partial(self._draw, size, kind), self._pool)
            except RuntimeError as error:
                # Launched one by one, the kernels may fit into cached memory; if the device is broken, they fail.
                log.warning("draws of %d members run without a CUDA graph: %s", size, one_line(error, most=200))
                self._captured[key] = None
        captured = self._captured.get(key)
        if captured is None:
            tokens = self._draw(size, kind)
            self._drawn[key] += 1
            return tokens
        graph, tokens = captured
        graph.replay()
        self.replays += 1
        return tokens

    @cached_property
    def _pool(self) -> torch.cuda._POOL_HANDLE:
        return torch.cuda.graph_pool_handle()

    @cached_property
    def _stream(self) -> torch.cuda.Stream:
        return torch.cuda.Stream()
