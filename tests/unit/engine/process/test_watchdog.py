"""An engine that stands still with requests in flight is noticed; one that works, or has nothing to do, is not."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable

import pytest

from thothy_ai.engine.process.watchdog import stalled

LIMIT = 0.2


def notices(steps: Callable[[], int], in_flight: int, patience: float) -> bool:
    async def watch() -> bool:
        try:
            await asyncio.wait_for(stalled(steps, lambda: in_flight, LIMIT), patience)
        except TimeoutError:
            return False
        return True

    return asyncio.run(watch())


@pytest.mark.parametrize(
    ("steps", "in_flight", "noticed"),
    [
        (lambda: 7, 3, True),
        (lambda: 7, 0, False),
        (itertools.count().__next__, 3, False),
    ],
    ids=["stands still", "nothing to do", "works"],
)
def test_who_stands_still(steps: Callable[[], int], in_flight: int, *, noticed: bool) -> None:
    assert notices(steps, in_flight, patience=30.0 if noticed else 5 * LIMIT) == noticed
