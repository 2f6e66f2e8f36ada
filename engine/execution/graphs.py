"""CUDA graphs of decode steps: one launch instead of some hundred, so that small steps don't wait for the host.

A graph is captured for each of a few sizes; a step is padded to the next one with members in the padding row. A size is
kept only if no larger one is faster: cuBLAS takes longer for some numbers of rows than for larger ones (llama-8b in
bfloat16 on an H200: 442 us per layer for 448 rows, 342 for 512). Graphs that are kept share one pool of memory:
they never run concurrently.
"""

from __future__ import annotations

import logging
import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

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


def worthwhile(times: Mapping[int, float]) -> list[int]:
    """The sizes that no larger one beats, ascending; `times` are those of a replay of each."""
    kept: list[int] = []
    fastest = math.inf  # of the larger ones
    for size in sorted(times, reverse=True):
        if times[size] <= fastest * _SLOWER:
            kept.append(size)
        fastest = min(fastest, times[size])
    return kept[::-1]


class _Timing(NamedTuple):
    """Events around a replay."""

    begin: torch.cuda.Event
    end: torch.cuda.Event


class DecodeGraphs:
    """Captured forwards; none until `capture`."""

    def __init__(self) -> None:
        self._sizes: list[int] = []
        self._captured: dict[int, tuple[torch.cuda.CUDAGraph, Tensor]] = {}
        self.replays = 0  # so far

    def capture(
        self,
        sizes: list[int],
        pad: Callable[[int], None],
        abridged: Callable[[int], Tensor],
        forward: Callable[[int], Tensor],
    ) -> None:
        """Capture those of `sizes` that no larger one beats. `forward(size)` computes hidden states [size, hidden] from
        buffers that stay in place; `pad(size)` sends a step of padding members to those. `abridged(size)` runs all
        kernels of `forward`, in some of its layers: it compiles and loads them, which a capture must not, and tells
        which sizes are slow.
        """
        stream, pool = torch.cuda.Stream(), torch.cuda.graph_pool_handle()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            self._sizes = _worthwhile(sizes, pad, abridged)
            for size in reversed(self._sizes):  # the largest first: the smaller ones fit into its memory
                pad(size)
                self._captured[size] = _capture(forward, size, pool)
                self._captured[size][0].replay()  # copies it to the device, for which its first step would wait
        torch.cuda.current_stream().wait_stream(stream)

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


def _worthwhile(sizes: list[int], pad: Callable[[int], None], forward: Callable[[int], Tensor]) -> list[int]:
    """Sizes that no larger one beats; one that seems slow is timed again: a single timing may be an outlier."""
    graphs, pool = dict[int, torch.cuda.CUDAGraph](), torch.cuda.graph_pool_handle()
    for size in reversed(sizes):
        pad(size)
        forward(size)
        graphs[size], _ = _capture(forward, size, pool)
    times = _times(graphs, sizes, pad, replays=1)
    slow = set(sizes).difference(worthwhile(times))
    times |= _times(graphs, slow, pad, replays=4)
    kept = worthwhile(times)
    log.info("graphs of %s rows; slower than a larger one: %s", kept, sorted(set(sizes).difference(kept)))
    return kept


def _times(
    graphs: Mapping[int, torch.cuda.CUDAGraph], sizes: Iterable[int], pad: Callable[[int], None], replays: int
) -> dict[int, float]:
    """Milliseconds of each size's shortest replay after one that loads the graph. The host waits at the end."""
    timed: dict[int, list[_Timing]] = {}
    for size in sizes:
        pad(size)
        graphs[size].replay()
        timed[size] = [_timed_replay(graphs[size]) for _ in range(replays)]
    torch.cuda.current_stream().synchronize()
    return {size: min(begin.elapsed_time(end) for begin, end in timings) for size, timings in timed.items()}


def _capture(
    forward: Callable[[int], Tensor], size: int, pool: torch.cuda._POOL_HANDLE
) -> tuple[torch.cuda.CUDAGraph, Tensor]:
    """What `torch.cuda.graph` does, without its garbage collection, which takes seconds over all sizes."""
    graph = torch.cuda.CUDAGraph()
    graph.capture_begin(pool=pool, capture_error_mode="thread_local")  # other threads may use the device meanwhile
    hidden = forward(size)
    graph.capture_end()
    return graph, hidden


def _timed_replay(graph: torch.cuda.CUDAGraph) -> _Timing:
    timing = _Timing(*(torch.cuda.Event(enable_timing=True) for _ in range(2)))
    timing.begin.record()
    graph.replay()
    timing.end.record()
    return timing
