"""CUDA graphs of what follows a decode step's forward pass: tokens are chosen by its logits, and written to the rows.

These are a dozen small kernels. Launched one by one, they take the host 0.3 ms per step, in which the device waits for
a step's masks and then for each launch. Which of them run depends on the number of members and on the draw's kind. A
draw is captured once it has come about as often as a capture costs launches, so that rare ones are not: that takes at
most twice as long as if it were known how often each comes. All graphs share one pool of memory: they never run
concurrently.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from thothy_ai.engine.execution.graphs import capture_graph
from thothy_ai.engine.execution.memory import is_out_of_memory
from thothy_ai.kernels.sampling import Work

_UNCAPTURED = 8  # draws of a size and kind; the first compiles and loads its kernels, which a capture must not


class DrawKind(NamedTuple):
    """What a draw takes: the kinds of its rows, and whether they have masks."""

    work: Work
    masked: bool


Draw = Callable[[int, DrawKind], Tensor]
_Key = tuple[int, DrawKind]


class DrawGraphs:
    """Runs `draw(size, kind)`, which returns the tokens [size] that it drew, from buffers that stay in place."""

    def __init__(self, draw: Draw) -> None:
        self._draw = draw
        self._drawn: Counter[_Key] = Counter()  # without a graph
        self._captured: dict[_Key, tuple[torch.cuda.CUDAGraph, Tensor]] = {}
        self.replays = 0  # so far

    def run(self, size: int, kind: DrawKind) -> Tensor:
        """Draw; the tokens stay valid until the next draw."""
        key = size, kind
        if key not in self._captured and (self._drawn[key] < _UNCAPTURED or not self._capture(key)):
            tokens = self._draw(size, kind)
            self._drawn[key] += 1
            return tokens
        graph, tokens = self._captured[key]
        graph.replay()
        self.replays += 1
        return tokens

    def _capture(self, key: _Key) -> bool:
        """False if the device has no memory for it: without a graph, what is cached may do."""
        if not self._captured:
            self._pool, self._stream = torch.cuda.graph_pool_handle(), torch.cuda.Stream()
        try:
            with torch.cuda.stream(self._stream):
                self._captured[key] = capture_graph(partial(self._draw, *key), self._pool)
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            return False
        return True
