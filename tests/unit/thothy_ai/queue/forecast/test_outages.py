"""Forecasts around an engine's crash: engines that start again, rates that are not learnt, and how often is looked."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.thothy_ai.queue.forecast.test_forecast import HOOK, drained, seen
from thothy_ai.queue.forecast.estimate import _seconds_for
from thothy_ai.queue.forecast.forecaster import IDLE_INTERVAL, MAX_INTERVAL, MIN_INTERVAL, interval
from thothy_ai.queue.forecast.learning import learn
from thothy_ai.queue.forecast.outlook import Basis, Forecast, forecast
from thothy_ai.queue.forecast.values import Key, WaitingJobs

COMES_BACK = 100.0  # seconds


def p50(made: Forecast) -> float:
    assert made.p50 is not None
    return made.p50


def p90(made: Forecast) -> float:
    assert made.p90 is not None
    return made.p90


@pytest.mark.parametrize(
    ("work", "ready", "back", "arriving", "seconds"),
    [
        (100.0, 1, [], 0.0, 100.0),
        (100.0, 1, [20.0], 0.0, 60.0),
        (10.0, 1, [20.0], 0.0, 10.0),
        (100.0, 0, [20.0], 0.0, 120.0),
        (0.0, 0, [20.0], 0.0, 20.0),
        (0.0, 1, [20.0], 0.0, 0.0),
        (90.0, 0, [20.0, 40.0], 0.0, 75.0),
        (100.0, 1, [20.0], 1.0, 120.0),
        (100.0, 0, [10.0], 0.5, 220.0),
    ],
)
def test_work_that_engines_share_as_they_come_back(
    work: float, ready: int, back: list[float], arriving: float, seconds: float
) -> None:
    assert _seconds_for(work, 1.0, ready, back, arriving) == pytest.approx(seconds)


def test_one_of_two_engines_starts_again() -> None:
    learnt, now = drained()
    both, one, returning = (
        forecast(learnt, replace(now, engines={"m": engines}, returning={"m": back}))
        for engines, back in ((2, ()), (1, ()), (1, (COMES_BACK,)))
    )
    assert p50(returning) == pytest.approx(p50(both) + COMES_BACK / 2, rel=0.02)
    assert p50(returning) < 0.6 * p50(one)
    assert p90(returning) - p50(returning) > p90(both) - p50(both)
    assert (returning.engines, returning.returning) == (1, 1)


def test_the_only_engine_starts_again() -> None:
    learnt, now = drained()
    whole, away = (
        forecast(learnt, now),
        forecast(learnt, replace(now, engines={"m": 0}, returning={"m": (COMES_BACK,)})),
    )
    assert away.basis is Basis.LEARNT
    assert p50(away) == pytest.approx(p50(whole) + COMES_BACK, rel=0.02)
    assert p90(away) > p90(whole) + COMES_BACK


def test_jobs_for_a_model_whose_engine_starts_again_are_not_without_an_engine() -> None:
    learnt, now = drained()
    groups = (WaitingJobs(Key("hook", "large"), 100.0),)
    away = replace(now, waiting=groups, engines={"large": 0}, returning={"large": (COMES_BACK,)})
    made = forecast(learnt, away)
    assert (made.unserved, made.basis) == (0, Basis.LEARNT)
    assert p50(made) > COMES_BACK


def test_jobs_stay_late_while_no_engine_is_ready() -> None:
    learnt, now = drained()
    late = replace(now, waiting=(WaitingJobs(HOOK, 1000.0, 1.0, 600.0),))
    gone = replace(late, at=now.at + 10, engines={})
    before, without = (forecast(learn(learnt, each), each, publish_at=now.at + 700.0) for each in (late, gone))
    assert without.basis is Basis.NO_ENGINE
    assert without.p50 is None
    assert without.late == pytest.approx(before.late, rel=0.05)
    assert without.publish_left is not None
    returning = forecast(learnt, replace(late, engines={}, returning={"m": (COMES_BACK,)}))
    assert returning.late == pytest.approx(before.late + COMES_BACK, rel=0.05)


def test_a_restart_between_two_observations_teaches_no_rate() -> None:
    learnt, now = drained()
    slow = seen(now.at + 300, now.waiting_jobs - 150, 150)
    restarted = learn(learnt, replace(slow, joined=now.at + 150))
    assert restarted.full_since == slow.at
    assert restarted.busy_recent.engine_seconds < learnt.busy_recent.engine_seconds
    assert learn(learnt, replace(slow, joined=now.at - 150)).busy_recent.compute > learnt.busy_recent.compute


@pytest.mark.parametrize(
    ("seconds", "open_jobs", "time", "returning", "every"),
    [
        (0.5, 0, 0.0, 0, IDLE_INTERVAL),  # the first look after a start takes long; then jobs arrive
        (0.7, 0, 0.0, 0, 7.0),
        (0.001, 9, 500.0, 0, MIN_INTERVAL),
        (1.0, 9, 5000.0, 0, 100.0),
        (1.0, 9, 200.0, 0, 50.0),
        (1.0, 9, 1.0, 0, 10.0),
        (1.0, 9, 5000.0, 1, 10.0),
        (1.0, 9, None, 0, 10.0),
        (9.0, 9, 9e5, 0, MAX_INTERVAL),
    ],
)
def test_how_soon_it_looks_again(
    seconds: float, open_jobs: float, time: float | None, returning: int, every: float
) -> None:
    learnt, now = drained()
    made = replace(forecast(learnt, now), open_jobs=open_jobs, p50=time, returning=returning)
    assert interval(seconds, made) == pytest.approx(every)
