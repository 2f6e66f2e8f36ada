"""Which combinations of parameters a test runs: every pair of values, or with TEST_DEEP=1 every combination."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Sequence
from typing import Any

DEEP = os.environ.get("TEST_DEEP", "") not in {"", "0"}


def combinations(*axes: Sequence[Any], shift: int = 0) -> list[tuple[Any, ...]]:
    """Combinations of one value from each axis, in which any two values of two axes meet at least once.

    Another `shift` chooses other combinations with the same property: tests that run for many models together
    cover more of them.
    """
    everything = list(itertools.product(*axes))
    if DEEP:
        return everything
    everything = everything[shift % len(everything) :] + everything[: shift % len(everything)]
    missing = set().union(*map(_pairs, everything))
    chosen = []
    while missing:
        best = max(everything, key=lambda row: len(_pairs(row) & missing))
        missing -= _pairs(best)
        chosen.append(best)
    return chosen


def spread(items: Iterable[Any], values: Sequence[Any], each: int = 1) -> list[tuple[Any, Any]]:
    """Every item with `each` of the values, which come in turn; in a deep run with all."""
    if DEEP:
        return list(itertools.product(items, values))
    turns = itertools.cycle(values)
    return [(item, next(turns)) for item in items for _ in range(each)]


def _pairs(row: tuple[Any, ...]) -> set[tuple[Any, ...]]:
    """The places and values of any two of a row; of one, where there is only one axis."""
    return set(itertools.combinations(enumerate(row), min(2, len(row))))
