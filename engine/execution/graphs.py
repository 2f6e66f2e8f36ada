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
from typing import Protocol, TypeVar

import torch

log = logging.getLogger(__name__)

_FINE, _FINE_UNTIL = 16, 256  # sizes are multiples of 16, and of 32 above: padding costs a few percent at most
_COARSE = 32
_SLOWER = 1.03  # than a larger size: timings of one size differ by less
_REPLAYS = 5  # that are timed

Forward = Callable[[int], object]
Result = TypeVar("Result")


class Decided(Protocol):
    """`Ranks.decided`: all ranks go on with what the first of them measured."""

    def __call__(self, value: Result, /) -> Result: ...


def alone(value: Result) -> Result:
    """What a single rank decides."""
    return value


def graph_sizes(max_rows: int) -> list[int]:
    """Sizes to capture, up to and including `max_rows`."""
    sizes = [1, 2, 4, 8, *range(_FINE, _FINE_UNTIL, _FINE), *range(_FINE_UNTIL, max_rows, _COARSE), max_rows]
    return sorted({size for size in sizes if size <= max_rows})


def worthwhile(times: Mapping[int, float]) -> list[int]:
    """The sizes that no larger one beats, ascending; `times`: of a replay of each size."""
    kept: list[int] = []
    fastest = math.inf  # of the larger ones
    for size in sorted(times, reverse=True):
        if times[size] <= fastest * _SLOWER:
            kept.append(size)
        fastest = min(fastest, times[size])
    return kept[::-1]


class DecodeGraphs:
    """Captured forwards; none until `capture`."""

    def __init__(self, decided: Decided = alone) -> None:
        self._decided = decided
        self._sizes: list[int] = []
        self._captured: dict[int, torch.cuda.CUDAGraph] = {}
        self._pool: torch.cuda._POOL_HANDLE
        self._stream: torch.cuda.Stream  # memory of a pool is used again by captures on the same stream only
        self.replays = 0  # so far
        self.seconds: Mapping[int, float] = {}  # of the captured sizes, if they were timed

    def capture(
        self, sizes: list[int], pad: Callable[[int], None], abridged: Forward, forward: Forward, *, timed: bool = False
    ) -> None:
        """Capture those of `sizes` that no larger one beats.

        `forward(size)` computes a step of `size` members from buffers that stay in place, and leaves its results in
        others; `pad(size)` sends a step of padding members to the former. `abridged(size)` runs all kernels of the
        model in one layer of each kind, or is `forward`: it compiles and loads them, which a capture must not, and its
        graphs are timed to find the slow sizes. The graphs that are kept are `timed` on request.
        """
        stream, pool = torch.cuda.Stream(), torch.cuda.graph_pool_handle()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            captured = dict[int, torch.cuda.CUDAGraph]()
            for size in reversed(sizes):  # the largest first: the smaller ones fit into its memory
                pad(size)
                abridged(size)
                captured[size], _ = capture_graph(partial(abridged, size), pool)
            kept = self._decided(worthwhile(_times(captured, pad)))
            log.info("graphs of %s rows; slower than a larger one: %s", kept, sorted(set(captured).difference(kept)))
            captured = {size: captured[size] for size in kept}
            if abridged is not forward:
                for size in reversed(kept):
                    pad(size)
                    captured[size], _ = capture_graph(partial(forward, size), pool)
                    captured[size].replay()  # copies it to the device, for which the first step of its size would wait
            if timed:
                self.seconds = {size: milliseconds / 1e3 for size, milliseconds in _times(captured, pad).items()}
        torch.cuda.current_stream().wait_stream(stream)
        self._sizes, self._captured, self._pool, self._stream = kept, captured, pool, stream

    def capture_as(self, other: DecodeGraphs, pad: Callable[[int], None], abridged: Forward, forward: Forward) -> None:
        """Capture the sizes that another set has, whose memory these share: the two never run concurrently."""
        stream = other._stream
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for size in reversed(other._sizes):
                pad(size)
                abridged(size)  # compiles and loads
                self._captured[size], _ = capture_graph(partial(forward, size), other._pool)
                self._captured[size].replay()
        torch.cuda.current_stream().wait_stream(stream)
        self._sizes, self._pool, self._stream = other._sizes, other._pool, stream

    def size_for(self, members: int) -> int | None:
        """The smallest captured size for `members` members, or None."""
        place = bisect_left(self._sizes, members)
        return self._sizes[place] if place < len(self._sizes) else None

    def replay(self, size: int) -> None:
        """Run a captured size; its results stay in the buffers until the next replay."""
        self._captured[size].replay()
        self.replays += 1


def _times(graphs: Mapping[int, torch.cuda.CUDAGraph], pad: Callable[[int], None]) -> dict[int, float]:
    """Milliseconds of each graph's shortest replay after one that loads it. The host waits at the end."""
    timed: dict[int, list[tuple[torch.cuda.Event, torch.cuda.Event]]] = {}
    for size, graph in graphs.items():
        pad(size)
        graph.replay()
        timed[size] = []
        for _ in range(_REPLAYS):
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            graph.replay()
            end.record()
            timed[size].append((begin, end))
    torch.cuda.current_stream().synchronize()
    return {size: min(begin.elapsed_time(end) for begin, end in events) for size, events in timed.items()}


def capture_graph(run: Callable[[], Result], pool: torch.cuda._POOL_HANDLE) -> tuple[torch.cuda.CUDAGraph, Result]:
    """As `torch.cuda.graph`, without its garbage collection, which takes seconds over all sizes.

    The current stream must not be the default one. After an error, it leaves the capture.
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
