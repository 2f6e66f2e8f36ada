"""CUDA graphs of decode steps: one launch instead of some hundred, so that small steps don't wait for the host.

A graph is captured for each of a few sizes; a step is padded to the next one with members in the padding row. A size is
kept only if no larger one is faster: cuBLAS takes longer for some numbers of rows than for larger ones (llama-8b in
bfloat16 on an H200: 442 us per layer for 448 rows, 342 for 512). Sizes are timed in graphs of some layers, and the
whole model is captured for those that are kept. All graphs share one pool of memory: they never run concurrently.
"""

from __future__ import annotations

import logging
import math
from bisect import bisect_left
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import NamedTuple, TypeVar

import torch

log = logging.getLogger(__name__)

_FINE, _FINE_UNTIL = 16, 256  # sizes are multiples of 16, and of 32 above: padding costs a few percent at most
_COARSE = 32
_SLOWER = 1.03  # than a larger size: timings of one size differ by less
_REPLAYS = 5  # that are timed

Forward = Callable[[int], object]
Result = TypeVar("Result")


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
        self._captured: dict[int, torch.cuda.CUDAGraph] = {}
        self.replays = 0  # so far

    def capture(self, sizes: list[int], pad: Callable[[int], None], abridged: Forward, forward: Forward) -> None:
        """Capture those of `sizes` that no larger one beats. `forward(size)` computes a step of `size` members from
        buffers that stay in place, and leaves its results in others; `pad(size)` sends a step of padding members to
        the former. `abridged(size)` runs all kernels of its layers, in some of them, or is `forward`: it compiles and
        loads them, which a capture must not, and tells which sizes are slow. One layer of each kind is timed, however
        many the model has.
        """
        stream, pool = torch.cuda.Stream(), torch.cuda.graph_pool_handle()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            captured = dict[int, torch.cuda.CUDAGraph]()
            for size in reversed(sizes):  # the largest first: the smaller ones fit into its memory
                pad(size)
                abridged(size)
                captured[size], _ = capture_graph(partial(abridged, size), pool)
            kept = _kept(_times(captured, pad))
            captured = {size: captured[size] for size in kept}
            if abridged is not forward:
                for size in reversed(kept):
                    pad(size)
                    captured[size], _ = capture_graph(partial(forward, size), pool)
                    captured[size].replay()  # copies it to the device, for which the first step of its size would wait
        torch.cuda.current_stream().wait_stream(stream)
        self._sizes, self._captured = kept, captured

    def size_for(self, members: int) -> int | None:
        """The smallest captured size for so many members, or None."""
        place = bisect_left(self._sizes, members)
        return self._sizes[place] if place < len(self._sizes) else None

    def replay(self, size: int) -> None:
        """Run a captured size; its results stay in the buffers until the next replay."""
        self._captured[size].replay()
        self.replays += 1


def _kept(times: Mapping[int, float]) -> list[int]:
    kept = worthwhile(times)
    log.info("graphs of %s rows; slower than a larger one: %s", kept, sorted(set(times).difference(kept)))
    return kept


def _times(graphs: Mapping[int, torch.cuda.CUDAGraph], pad: Callable[[int], None]) -> dict[int, float]:
    """Milliseconds of each graph's shortest replay after one that loads it. The host waits at the end."""
    timed: dict[int, list[_Timing]] = {}
    for size, graph in graphs.items():
        pad(size)
        graph.replay()
        timed[size] = [_timed_replay(graph) for _ in range(_REPLAYS)]
    torch.cuda.current_stream().synchronize()
    return {size: min(begin.elapsed_time(end) for begin, end in timings) for size, timings in timed.items()}


def capture_graph(run: Callable[[], Result], pool: torch.cuda._POOL_HANDLE) -> tuple[torch.cuda.CUDAGraph, Result]:
    """What `torch.cuda.graph` does, without its garbage collection, which takes seconds over all sizes. The current
    stream is not the default one. Out of memory, the stream leaves the capture.
    """
    graph = torch.cuda.CUDAGraph()
    graph.capture_begin(pool=pool, capture_error_mode="thread_local")  # other threads may use the device meanwhile
    try:
        result = run()
    except BaseException:
        with suppress(RuntimeError):
            graph.capture_end()
        raise
    graph.capture_end()
    return graph, result


def _timed_replay(graph: torch.cuda.CUDAGraph) -> _Timing:
    timing = _Timing(*(torch.cuda.Event(enable_timing=True) for _ in range(2)))
    timing.begin.record()
    graph.replay()
    timing.end.record()
    return timing
