"""CUDA graphs of decode steps: one launch instead of some hundred, so that few rows don't wait for the host.

A graph is captured for each of a few sizes; a step is padded to the next one with members that are nobody's. All graphs
share one pool of memory: they never run side by side.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable

import torch
from torch import Tensor

_FINE, _FINE_UNTIL = 16, 256  # sizes in steps of 16 members, and of 32 above: padding costs a few percent at most
_COARSE = 32


def graph_sizes(max_rows: int) -> list[int]:
    """Sizes to capture, up to and including `max_rows`."""
    sizes = [1, 2, 4, 8, *range(_FINE, _FINE_UNTIL, _FINE), *range(_FINE_UNTIL, max_rows, _COARSE), max_rows]
    return sorted({size for size in sizes if size <= max_rows})


class DecodeGraphs:
    """Captured forwards. `forward(size)` computes hidden states [size, hidden] from buffers that stay in place;
    `pad(size)` fills those with something harmless.
    """

    def __init__(self, sizes: list[int], forward: Callable[[int], Tensor], pad: Callable[[int], None]) -> None:
        self._sizes = sizes
        self._captured: dict[int, tuple[torch.cuda.CUDAGraph, Tensor]] = {}
        if not sizes:
            return
        stream, pool = torch.cuda.Stream(), torch.cuda.graph_pool_handle()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for size in reversed(sizes):  # the largest first: the smaller ones fit into its memory
                pad(size)
                forward(size)  # compiles and loads what capture must not
                stream.synchronize()
                self._captured[size] = _capture(forward, size, pool)
        torch.cuda.current_stream().wait_stream(stream)

    def size_for(self, members: int) -> int | None:
        """The smallest captured size that holds so many members, or None."""
        place = bisect_left(self._sizes, members)
        return self._sizes[place] if place < len(self._sizes) else None

    def replay(self, size: int) -> Tensor:
        """Run a captured size; its result [size, hidden] stays valid until the next replay."""
        graph, hidden = self._captured[size]
        graph.replay()
        return hidden


def _capture(
    forward: Callable[[int], Tensor], size: int, pool: torch.cuda._POOL_HANDLE
) -> tuple[torch.cuda.CUDAGraph, Tensor]:
    """Like the context manager `torch.cuda.graph`, which collects garbage each time: seconds, for some forty sizes."""
    graph = torch.cuda.CUDAGraph()
    graph.capture_begin(pool=pool, capture_error_mode="thread_local")  # other threads may go on
    hidden = forward(size)
    graph.capture_end()
    return graph, hidden
