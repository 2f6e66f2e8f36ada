"""CUDA graphs of decode steps: one launch instead of some hundred, so that small steps don't wait for the host.

A graph is captured for each of a few sizes; a step is padded to the next one with members in the padding row. A size is
kept only if no larger one is faster: cuBLAS takes longer for some numbers of rows than for larger ones (llama-8b in
bfloat16 on an H200: 442 us per layer for 448 rows, 342 for 512). All graphs share one pool of memory: they never run
concurrently.
"""

from __future__ import annotations

import logging
import math
from bisect import bisect_left
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

log = logging.getLogger(__name__)

_FINE, _FINE_UNTIL = 16, 256  # sizes are multiples of 16, and of 32 above: padding costs a few percent at most
_COARSE = 32
_SLOWER = 1.03  # than a larger size: timings of one size differ by less


def graph_sizes(max_rows: int) -> list[int]:
    """Sizes to capture, up to and including `max_rows`."""
    sizes = [1, 2, 4, 8, *range(_FINE, _FINE_UNTIL, _FINE), *range(_FINE_UNTIL, max_rows, _COARSE), max_rows]
    return sorted({size for size in sizes if size <= max_rows})


def worthwhile(seconds: Mapping[int, float]) -> list[int]:
    """The sizes that no larger one beats, ascending; `seconds` are those of a replay of each."""
    kept: list[int] = []
    fastest = math.inf  # of the larger ones
    for size in sorted(seconds, reverse=True):
        if seconds[size] <= fastest * _SLOWER:
            kept.append(size)
        fastest = min(fastest, seconds[size])
    return kept[::-1]


class DecodeGraphs:
    """Captured forwards; none until `capture`."""

    def __init__(self) -> None:
        self._sizes: list[int] = []
        self._captured: dict[int, tuple[torch.cuda.CUDAGraph, Tensor]] = {}
        self.replays = 0  # so far

    def capture(self, sizes: list[int], forward: Callable[[int], Tensor], pad: Callable[[int], None]) -> None:
        """Capture those of `sizes` that no larger one beats. `forward(size)` computes hidden states [size, hidden] from
        buffers that stay in place; `pad(size)` sends a step of padding members to those.
        """
        stream, pool = torch.cuda.Stream(), torch.cuda.graph_pool_handle()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for size in reversed(sizes):  # the largest first: the smaller ones fit into its memory
                pad(size)
                forward(size)  # compiles and loads what must not be compiled or loaded during the capture
                stream.synchronize()
                self._captured[size] = _capture(forward, size, pool)
            self._sizes = self._worthwhile(sizes, pad)
        torch.cuda.current_stream().wait_stream(stream)
        self._captured = {size: self._captured[size] for size in self._sizes}

    def _worthwhile(self, sizes: list[int], pad: Callable[[int], None]) -> list[int]:
        """Sizes that no larger one beats; one that seems slow is timed again: a single timing may be an outlier."""
        seconds = {size: self._seconds(size, pad, replays=1) for size in sizes}
        for size in set(sizes).difference(worthwhile(seconds)):
            seconds[size] = self._seconds(size, pad, replays=4)
        kept = worthwhile(seconds)
        log.info("graphs of %s rows; slower than a larger one: %s", kept, sorted(set(sizes).difference(kept)))
        return kept

    def _seconds(self, size: int, pad: Callable[[int], None], replays: int) -> float:
        """The shortest replay, after one that loads the graph."""
        pad(size)
        self._captured[size][0].replay()
        return min(_replay_seconds(self._captured[size][0]) for _ in range(replays))

    def size_for(self, members: int) -> int | None:
        """The smallest captured size for so many members, or None."""
        place = bisect_left(self._sizes, members)
        return self._sizes[place] if place < len(self._sizes) else None

    def replay(self, size: int) -> Tensor:
        """Run a captured size; its result [size, hidden] stays valid until the next replay."""
        graph, hidden = self._captured[size]
        graph.replay()
        self.replays += 1
        return hidden


def _capture(
    forward: Callable[[int], Tensor], size: int, pool: torch.cuda._POOL_HANDLE
) -> tuple[torch.cuda.CUDAGraph, Tensor]:
    """What `torch.cuda.graph` does, without its garbage collection, which takes seconds over all sizes."""
    graph = torch.cuda.CUDAGraph()
    graph.capture_begin(pool=pool, capture_error_mode="thread_local")  # other threads may use the device meanwhile
    hidden = forward(size)
    graph.capture_end()
    return graph, hidden


def _replay_seconds(graph: torch.cuda.CUDAGraph) -> float:
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    graph.replay()
    end.record()
    end.synchronize()
    milliseconds: float = begin.elapsed_time(end)
    return milliseconds / 1e3
