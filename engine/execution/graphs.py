"""CUDA graphs of decode steps: one launch instead of some hundred, so that small steps don't wait for the host.

A graph is captured for each of a few sizes, and a step is padded to the next size with members in the padding row. A
size is kept only if no larger one is faster, since cuBLAS takes longer for some numbers of rows than for larger ones
(llama-8b in bfloat16 on an H200: 442 us per layer for 448 rows, 342 for 512). Sizes are timed with graphs of a few
layers, and the whole model is captured for the kept sizes. All graphs share one memory pool, since they never run
concurrently.
"""

from __future__ import annotations

import gc
import logging
import math
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import Protocol, TypeVar

import torch

log = logging.getLogger(__name__)

_FINE, _FINE_UNTIL = 16, 256  # sizes are multiples of 16, above 256 of 32: padding costs a few percent at most
_COARSE = 32
_SLOWER = 1.03  # ratio to a larger size's time; repeated timings differ by less
_REPLAYS = 5  # timed replays per size

Forward = Callable[[int], object]
Result = TypeVar("Result")


class Decided(Protocol):
    """The type of `Ranks.decided`: all ranks use the first rank's measurement."""

    def __call__(self, value: Result, /) -> Result: ...


def alone(value: Result) -> Result:
    """`Decided` for a single rank: returns the value itself."""
    return value


def graph_sizes(max_rows: int) -> list[int]:
    """Sizes to capture, up to and including `max_rows`."""
    sizes = [1, 2, 4, 8, *range(_FINE, _FINE_UNTIL, _FINE), *range(_FINE_UNTIL, max_rows, _COARSE), max_rows]
    return sorted({size for size in sizes if size <= max_rows})


def worthwhile(times: Mapping[int, float]) -> list[int]:
    """The sizes, ascending, that no larger one beats; `times`: a replay's time by size."""
    kept: list[int] = []
    fastest = math.inf  # time of any larger size
    for size in sorted(times, reverse=True):
        if times[size] <= fastest * _SLOWER:
            kept.append(size)
        fastest = min(fastest, times[size])
    return kept[::-1]


class DecodeGraphs:
    """Captured forward passes; none until `capture`."""

    def __init__(self, decided: Decided = alone) -> None:
        self._decided = decided
        self._sizes: list[int] = []
        self._captured: dict[int, torch.cuda.CUDAGraph] = {}
        self._pool: torch.cuda._POOL_HANDLE
        self._stream: torch.cuda.Stream  # a pool's memory is reused only by captures on the same stream
        self.replays = 0  # so far
        self.seconds: Mapping[int, float] = {}  # by captured size, if they were timed

    def capture(
        self, sizes: list[int], pad: Callable[[int], None], abridged: Forward, forward: Forward, *, timed: bool = False
    ) -> None:
        """Capture those of `sizes` that no larger one beats.

        `forward(size)` computes a step of `size` members from fixed input buffers into fixed output buffers;
        `pad(size)` fills the inputs with padding members. `abridged(size)` runs one layer of each kind, and thus all
        kernels of the model, or is `forward`. It compiles and loads the kernels, which a capture must not do, and its
        graphs are timed to find the slow sizes. With `timed`, the kept graphs are timed as well.
        """
        stream, pool = torch.cuda.Stream(), torch.cuda.graph_pool_handle()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            captured = dict[int, torch.cuda.CUDAGraph]()
            for size in reversed(sizes):  # the largest first: smaller ones reuse its memory
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
                    captured[size].replay()  # uploads the graph, so that its first step need not wait for that
            if timed:
                self.seconds = {size: milliseconds / 1e3 for size, milliseconds in _times(captured, pad).items()}
        torch.cuda.current_stream().wait_stream(stream)
        self._sizes, self._captured, self._pool, self._stream = kept, captured, pool, stream

    def capture_as(self, other: DecodeGraphs, pad: Callable[[int], None], abridged: Forward, forward: Forward) -> None:
        """Capture the sizes of `other`, and share its memory, since the two sets never run concurrently."""
        stream = other._stream
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for size in reversed(other._sizes):
                pad(size)
                abridged(size)  # compiles and loads kernels
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
    """Milliseconds of each graph's shortest replay, after an untimed one that loads it. Waits for the device."""
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
    """Like `torch.cuda.graph`, but without its garbage collection, which takes seconds over all sizes.

    The current stream must not be the default one. An error ends the capture.
    """
    graph = torch.cuda.CUDAGraph()
    with uncollected():
        graph.capture_begin(pool=pool, capture_error_mode="thread_local")  # other threads can use the device
        try:
            result = run()
        except BaseException:
            with suppress(RuntimeError):
                graph.capture_end()
            raise
        graph.capture_end()
    return graph, result


@contextmanager
def uncollected() -> Iterator[None]:
    """Run the block without garbage collection. During a capture, to free another model's graphs makes it fail."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
