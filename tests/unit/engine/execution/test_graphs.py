"""Sizes of decode graphs; capturing and replaying them is tests/gpu's."""

from __future__ import annotations

from itertools import pairwise

import pytest

from thothy_ai.engine.execution.graphs import graph_sizes, worthwhile


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
