"""Sizes of decode graphs, and which are captured whole; capturing and replaying them on a device is tests/gpu's."""

from __future__ import annotations

import gc
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.support.graphs_without_gpu import no_streams
from thothy_ai.engine.execution import graphs
from thothy_ai.engine.execution.graphs import DecodeGraphs, graph_sizes, worthwhile


@pytest.mark.parametrize("max_rows", [1, 3, 16, 17, 255, 256, 700, 1024])
def test_sizes_reach_the_most_rows_and_pad_little(max_rows: int) -> None:
    sizes = graph_sizes(max_rows)
    assert sizes == sorted(set(sizes))
    assert sizes[-1] == max_rows
    assert all(larger - smaller <= max(16, smaller // 8) for smaller, larger in pairwise(sizes))


def test_a_size_is_dropped_when_a_larger_one_is_faster() -> None:
    assert worthwhile({384: 287, 416: 441, 448: 442, 480: 343, 512: 342, 544: 400}) == [384, 480, 512, 544]


def test_timings_of_one_speed_keep_every_size() -> None:
    assert worthwhile({1: 1.02, 2: 1.0, 4: 1.01, 8: 1.0}) == [1, 2, 4, 8]


def test_nothing_to_choose_from() -> None:
    assert worthwhile({}) == []


TIMES = {1: 3.0, 2: 1.0, 4: 5.0, 8: 2.0}  # a graph of 2 is the fastest of those up to it, and one of 8 of all above


class Graph:
    """A graph that records its replays."""

    def __init__(self, run: partial[Tensor], replayed: list[tuple[str, int]]) -> None:
        self._of, self._replayed = (run.func.__name__, run.args[0]), replayed

    def replay(self) -> None:
        self._replayed.append(self._of)


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[tuple[str, int]]]:
    """What was captured and replayed, each with the name of its forward, of a model whose sizes take `TIMES`."""
    noted: dict[str, list[tuple[str, int]]] = {"captured": [], "replayed": []}

    def capture(run: partial[Tensor], pool: object) -> tuple[Any, Tensor]:
        noted["captured"].append((run.func.__name__, run.args[0]))
        return Graph(run, noted["replayed"]), run()

    monkeypatch.setattr(graphs, "capture_graph", capture)
    monkeypatch.setattr(graphs, "_times", lambda captured, pad: {size: TIMES[size] for size in captured})
    no_streams(monkeypatch)
    return noted


def whole(size: int) -> Tensor:
    return torch.full((size, 1), 1.0)


def abridged(size: int) -> Tensor:
    return torch.full((size, 1), 2.0)


def test_only_sizes_that_are_kept_are_captured_whole(events: dict[str, list[tuple[str, int]]]) -> None:
    made = DecodeGraphs()
    made.capture([*TIMES], lambda size: None, abridged, whole)
    assert events["captured"] == [*(("abridged", size) for size in (8, 4, 2, 1)), ("whole", 8), ("whole", 2)]
    assert events["replayed"] == [("whole", 8), ("whole", 2)]
    assert [made.size_for(members) for members in (1, 2, 3, 8, 9)] == [2, 2, 8, 8, None]
    made.replay(2)
    assert events["replayed"][2:] == [("whole", 2)]


def test_a_model_that_is_not_abridged_is_captured_once(events: dict[str, list[tuple[str, int]]]) -> None:
    made = DecodeGraphs()
    made.capture([*TIMES], lambda size: None, whole, whole)
    assert events["captured"] == [("whole", size) for size in (8, 4, 2, 1)]
    made.replay(8)
    assert events["replayed"] == [("whole", 8)]


def test_after_a_capture_that_fails_there_are_no_graphs(events: dict[str, list[tuple[str, int]]]) -> None:
    def failing(size: int) -> Tensor:
        raise RuntimeError("out of memory")

    made = DecodeGraphs()
    with pytest.raises(RuntimeError, match="out of memory"):
        made.capture([*TIMES], lambda size: None, abridged, failing)
    assert made.size_for(1) is None


class Capture:
    """A graph that counts its captures; one that fails may leave the capture, or not."""

    def __init__(self, *, leaves: bool) -> None:
        self.captures, self.open, self._leaves = 0, 0, leaves

    def capture_begin(self, **_: object) -> None:
        self.captures += 1
        self.open += 1

    def capture_end(self) -> None:
        self.open -= 1
        if not self._leaves:
            raise RuntimeError("operation failed due to a previous error during capture")


@pytest.mark.parametrize("leaves", [True, False])
def test_a_capture_that_fails_is_left_and_raises_its_own_error(
    monkeypatch: pytest.MonkeyPatch, *, leaves: bool
) -> None:
    made = Capture(leaves=leaves)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", lambda: made)

    def failing() -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    with pytest.raises(torch.OutOfMemoryError):
        graphs.capture_graph(failing, object())
    assert (made.captures, made.open) == (1, 0)
    if leaves:
        assert graphs.capture_graph(lambda: 3, object()) == (made, 3)
        assert made.open == 0


@pytest.mark.parametrize("enabled", [True, False])
def test_no_garbage_is_collected_during_a_capture(monkeypatch: pytest.MonkeyPatch, *, enabled: bool) -> None:
    """Among it can be another model's graphs, which may not be freed then."""
    monkeypatch.setattr(torch.cuda, "CUDAGraph", lambda: Capture(leaves=True))
    before = gc.isenabled()
    (gc.enable if enabled else gc.disable)()
    try:
        assert graphs.capture_graph(gc.isenabled, object())[1] is False
        assert gc.isenabled() is enabled
    finally:
        (gc.enable if before else gc.disable)()
