"""Seconds by tokens in flight."""

from __future__ import annotations

import random

import pytest

from thothy_ai.foreign.shares import TokenShares


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_second_is_divided_by_tokens_in_flight() -> None:
    clock = Clock()
    shares = TokenShares(clock)
    clock.now += 5  # nothing is in flight
    shares.enter("a", 30)
    clock.now += 1  # a's alone
    shares.enter("b", 10)
    clock.now += 2  # 30 to 10
    shares.add("b", 20)
    clock.now += 4  # 30 to 30
    assert shares.leave("a") == pytest.approx(1 + 1.5 + 2)
    clock.now += 1
    assert shares.leave("b") == pytest.approx(0.5 + 2 + 1)
    clock.now += 7
    assert shares.busy_seconds == pytest.approx(8)


def test_all_shares_add_up_to_the_busy_time() -> None:
    clock, draw, given = Clock(), random.Random(7), 0.0
    shares, open_ = TokenShares(clock), set[int]()
    for number in range(3000):
        clock.now += draw.expovariate(10)
        if not open_ or draw.random() < 0.4:
            shares.enter(number, draw.randrange(2000))
            open_.add(number)
        elif draw.random() < 0.6:
            shares.add(draw.choice(sorted(open_)), draw.randrange(5))
        else:
            given += shares.leave(leaving := draw.choice(sorted(open_)))
            open_.remove(leaving)
    given += sum(map(shares.leave, open_))
    assert given == pytest.approx(shares.busy_seconds)
