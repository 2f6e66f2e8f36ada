"""An engine that stands still with requests in flight is noticed; one that works, or has nothing to do, is not."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable

import pytest

from thothy_ai.engine.process.watchdog import Stillness, stalled

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


def looks(stillness: Stillness, *seen: tuple[int, int, float]) -> list[bool]:
    """Whether it hangs, at each look: (progress, requests in flight, seconds since the last)."""
    return [stillness.hangs(*look) for look in seen]


def after(steps: int, *, seconds: float, each: int = 1) -> Stillness:
    """An engine that was seen to make so many steps, `each` between two looks `seconds` apart."""
    stillness = Stillness(0, 300.0)
    assert not any(looks(stillness, *((each * (i + 1), 1, seconds) for i in range(steps // each))))
    return stillness


def test_patience_is_the_most_until_enough_steps_are_seen() -> None:
    assert after(99, seconds=1.0).patience == 300.0
    assert looks(after(99, seconds=1.0), *[(99, 1, 100.0)] * 3) == [False, False, True]


def test_patience_follows_the_longest_step() -> None:
    assert after(100, seconds=0.2).patience == 60.0
    assert after(1000, seconds=2.0, each=10).patience == 60.0, "ten steps between two looks"
    assert after(100, seconds=4.0).patience == 80.0
    assert after(100, seconds=40.0).patience == 300.0
    assert looks(after(100, seconds=0.2), (100, 1, 59.9), (100, 1, 0.2)) == [False, True]
    assert looks(after(100, seconds=4.0), (100, 1, 79.9), (101, 1, 0.2), (101, 1, 79.9)) == [False] * 3


def test_a_long_step_makes_it_patient_ever_after() -> None:
    stillness = after(100, seconds=0.2)
    assert not any(looks(stillness, (100, 1, 50.0), (101, 1, 1.0), *[(101, 1, 50.0)] * 5))
    assert stillness.patience == 300.0
    assert looks(stillness, (101, 1, 50.0)) == [True]


def test_without_requests_it_may_stand_still() -> None:
    stillness = after(100, seconds=0.2)
    assert not any(looks(stillness, *[(100, 0, 50.0)] * 9, (100, 1, 50.0), (101, 1, 1.0)))


def test_the_most_may_be_less_than_what_is_learnt() -> None:
    stillness = Stillness(0, 10.0)
    looks(stillness, *((i, 1, 0.1) for i in range(200)))
    assert stillness.patience == 10.0


def test_time_in_which_the_process_stood_still_itself_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that leaps by an hour between two looks, once: the engine had as little time as the watchdog."""
    clock, steps = itertools.chain([0.0, 1.0, 3601.0], itertools.count(3602.0)), itertools.chain([7] * 4, [8] * 500)
    ticks = 0

    async def tick(seconds: float) -> None:
        nonlocal ticks
        ticks += 1
        assert seconds == 2.0

    monkeypatch.setattr("thothy_ai.engine.process.watchdog.asyncio.sleep", tick)
    monkeypatch.setattr("thothy_ai.engine.process.watchdog.time.monotonic", clock.__next__)
    assert asyncio.run(stalled(steps.__next__, lambda: 1, 300.0)) == 300.0
    assert ticks == 3 + 1 + 300, "three looks at one step, one at the next, and 300 seconds"
