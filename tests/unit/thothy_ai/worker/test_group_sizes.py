"""How many quarantined jobs run at once, by the engine's capacity."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thothy_ai.worker.record.claims import ASSUMED_CAPACITY, GroupSizes


@pytest.mark.parametrize(
    ("capacity", "once", "twice"), [(1024, 512, 32), (768, 384, 27), (256, 128, 16), (8, 4, 2), (1, 1, 1)]
)
def test_half_of_the_engine_and_then_its_root(capacity: int, once: int, twice: int) -> None:
    assert GroupSizes.of(capacity) == GroupSizes(once, twice)


def test_an_engine_that_does_not_say_how_many_it_runs() -> None:
    assert GroupSizes.of(0) == GroupSizes.of(ASSUMED_CAPACITY)


@given(st.integers(1, 4096))
def test_groups_shrink_and_are_never_empty(capacity: int) -> None:
    sizes = GroupSizes.of(capacity)
    assert 1 <= sizes.twice <= max(2, sizes.once) <= max(2, capacity)
