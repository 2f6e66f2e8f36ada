"""The search for the knee, and what samples mean."""

from __future__ import annotations

import asyncio

import pytest

from thothy_ai.bench.service.load import Goal, Load, RequestTiming, percentile
from thothy_ai.bench.service.sweep import NEAR, Sweep, SweepOptions, find_knee, sweep_rows, verdict


@pytest.mark.parametrize(("knee", "start"), [(37.0, 1.0), (0.3, 8.0), (8.0, 8.0), (1000.0, 1.0)])
def test_the_knee_is_found_by_doubling_and_division(knee: float, start: float) -> None:
    tried: list[float] = []

    async def load(rate: float) -> bool:
        tried.append(rate)
        return rate <= knee

    asyncio.run(find_knee(load, start))
    met = max(rate for rate in tried if rate <= knee)
    missed = min(rate for rate in tried if rate > knee)
    assert missed / met <= NEAR
    assert len(tried) < 20


def test_a_search_without_an_end_ends() -> None:
    tried: list[float] = []

    async def load(rate: float) -> bool:
        tried.append(rate)
        return True

    asyncio.run(find_knee(load, 1.0))
    assert len(tried) == 24


def samples(*first: float, late: float = 0.0) -> tuple[RequestTiming, ...]:
    return tuple(RequestTiming(float(at), late, each, each + 0.9, 10) for at, each in enumerate(first))


def test_the_knee_is_below_the_first_rate_that_misses_the_target() -> None:
    loads = (
        Load(1, 10, 0.1, samples(0.1, 0.15)),
        Load(2, 10, 0.1, samples(0.1, 0.19)),
        Load(4, 10, 0.1, samples(0.1, 0.3)),
        Load(8, 10, 0.1, samples(0.1, 0.1)),
    )
    sweep = Sweep(SweepOptions("x", target=Goal(0.2, 0.11)), "m", 50, loads)
    assert (sweep.knee, sweep.bounded) == (2, True)
    assert verdict(sweep)[1] == "Knee: 2 requests per second."
    assert [load["attained"] for load in sweep.to_json()["loads"]] == [1, 1, 0.5, 1]
    assert sweep.to_json()["loads"][2]["goodput"] == pytest.approx(0.5 / 1.2)
    tighter = Sweep(SweepOptions("x", target=Goal(0.2, 0.05)), "m", 50, loads)
    assert tighter.knee is None, "0.1 s per token"


def test_a_client_that_lags_says_so() -> None:
    late = Load(4, 10, 0.1, samples(0.1, late=0.05))
    busy = Load(4, 10, 0.95, samples(0.1))
    assert [load.lags for load in (late, busy, Load(4, 10, 0.1, samples(0.1)))] == [True, True, False]
    assert "The client lagged" in verdict(Sweep(SweepOptions("x"), "m", 50, (late,)))[-1]


def test_failed_requests_have_no_latency_and_miss_the_target() -> None:
    load = Load(4, 10, 0.1, (*samples(0.1), RequestTiming(1.0, 0.0, error="refused")))
    assert load.attained(Goal(0.2, 0.2)) == 0.5
    assert load.percentile("first_token", 0.99) == 0.1
    assert Load(4, 10, 0.1, (RequestTiming(0.0, 0.0, error="x"),)).percentile("whole", 0.5) is None


def test_percentiles() -> None:
    assert [percentile([3, 1, 2, 4], share) for share in (0.0, 0.5, 0.99)] == [1, 3, 4]


def test_throughput_is_that_of_the_loaded_server() -> None:
    """Twelve answers of 10 s each to requests of one second each: one per second, and not twelve in 21 s."""
    load = Load(1, 21, 0.1, tuple(RequestTiming(float(at), 0.0, 0.1, 10.0, 100) for at in range(12)))
    assert load.answers_per_second == pytest.approx(1.0)
    [shown] = Sweep(SweepOptions("x", target=Goal(0.2, 0.2)), "m", 50, (load,)).to_json()["loads"]
    assert (shown["output_tokens_per_second"], shown["goodput"]) == (pytest.approx(100.0), pytest.approx(1.0))
    assert Load(1, 10, 0.1, load.samples[:1]).answers_per_second == 0.1
    assert Load(1, 10, 0.1, (RequestTiming(0.0, 0.0, error="x"),)).answers_per_second == 0.0


def test_a_load_that_is_shorter_than_an_answer_tells_no_rate_by_its_ends() -> None:
    """Of a hundred requests within a second: all answers end after 20 s, within a second."""
    load = Load(100, 21, 0.1, tuple(RequestTiming(at / 100, 0.0, 0.1, 20.0, 400) for at in range(100)))
    sweep = Sweep(SweepOptions("x", target=Goal(0.2, 0.2)), "m", 50, (load,))
    [shown] = sweep.to_json()["loads"]
    assert (shown["requests_per_second"], shown["goodput"]) == (pytest.approx(100 / 21), pytest.approx(100 / 21))
    assert shown["short"]
    assert sweep_rows(sweep)[0][0] == "100 !"
    assert "up to 20 s" in verdict(sweep)[-1]
    longer = Load(1, 60, 0.1, tuple(RequestTiming(float(at), 0.0, 0.1, 20.0, 400) for at in range(40)))
    assert (longer.is_short, longer.answers_per_second) == (False, pytest.approx(1.0))
