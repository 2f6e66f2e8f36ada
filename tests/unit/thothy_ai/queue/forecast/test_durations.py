"""Durations against samples: what is left of them, and when the last of many ends."""

from __future__ import annotations

import math
import random
from statistics import fmean, median, quantiles

import pytest

from thothy_ai.queue.forecast.durations import Cell, Duration, last_end

DURATION = Duration(mu=math.log(30), sigma=0.5)


def drawn(rng: random.Random) -> float:
    return math.exp(DURATION.mu + DURATION.sigma * rng.gauss(0, 1))


def test_the_mean_and_what_is_left() -> None:
    rng = random.Random(1)
    samples = [drawn(rng) for _ in range(40_000)]
    assert DURATION.mean == pytest.approx(fmean(samples), rel=0.02)
    assert DURATION.left(0.0) == pytest.approx(DURATION.mean)
    assert DURATION.left(40.0) == pytest.approx(fmean(s - 40 for s in samples if s > 40), rel=0.03)
    assert DURATION.stationary_left == pytest.approx(fmean(s * s for s in samples) / 2 / fmean(samples), rel=0.03)
    assert DURATION.survival(50.0) == pytest.approx(fmean(s > 50 for s in samples), abs=0.01)
    assert DURATION.left(1e6) > 0  # of a job that has run for longer than any


@pytest.mark.parametrize(("jobs", "age"), [(1, 0.0), (30, 0.0), (200, 20.0)])
def test_the_last_end(jobs: int, age: float) -> None:
    rng = random.Random(2)
    pool = [s - age for s in (drawn(rng) for _ in range(60_000)) if s > age]
    ends = [max(rng.choices(pool, k=jobs)) for _ in range(800)]
    p50, p90 = last_end([Cell(jobs, DURATION, age)], lambda _: 1.0)
    assert p50 == pytest.approx(median(ends), rel=0.06)
    assert p90 == pytest.approx(quantiles(ends, n=10)[-1], rel=0.06)


def test_what_follows_comes_after() -> None:
    rng = random.Random(3)
    ends = [max(drawn(rng) + drawn(rng) for _ in range(20)) for _ in range(1500)]
    p50, _ = last_end([Cell(20, DURATION, 0.0), Cell(20, DURATION, 0.0, DURATION)], lambda _: 1.0)
    assert p50 == pytest.approx(median(ends), rel=0.12)


def test_an_engine_that_empties_is_faster() -> None:
    cells = [Cell(100, DURATION, 0.0)]
    flat, _ = last_end(cells, lambda _: 1.0)
    faster, _ = last_end(cells, lambda alive: 0.2 + 0.8 * alive / 100)
    assert 0.3 * flat < faster < 0.7 * flat


def test_nothing_in_flight_ends_at_once() -> None:
    assert last_end([], lambda _: 1.0) == (0.0, 0.0)
