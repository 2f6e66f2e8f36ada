"""The forecast from frozen values: costs, rates, arrivals, deadlines, and input that says little."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from thothy_ai.queue.forecast import memory
from thothy_ai.queue.forecast.accuracy import Past, accuracy
from thothy_ai.queue.forecast.learning import History, learn
from thothy_ai.queue.forecast.outlook import Basis, Forecast, forecast
from thothy_ai.queue.forecast.values import EndedAttempts, Key, Observation, RunningJobs, WaitingJobs

HOOK, REPORT, LINE = Key("hook"), Key("report"), Key("line")
SLOTS = 20
RUN = 20.0  # seconds of a job on a full engine, which ends one per second


def ended(jobs: float, cost: float = 1.0, **more: object) -> EndedAttempts:
    log = math.log(RUN)
    return EndedAttempts(
        finished=jobs, left=jobs, attempts=jobs, compute=jobs * cost, compute_squares=jobs * cost**2 * 1.2, runs=jobs,
        log_run=jobs * log, log_run_squares=jobs * (log**2 + 0.09), **more,  # type: ignore[arg-type]
    )  # fmt: skip


def seen(at: float, waiting: float, done: float = 0.0, engines: int = 1, **more: object) -> Observation:
    return Observation(
        at=at,
        waiting=(WaitingJobs(HOOK, waiting, 1.0),) if waiting else (),
        running=(RunningJobs(HOOK, SLOTS * engines, RUN / 2),) if waiting and engines else (),
        engines={"m": engines} if engines else {},
        ended={HOOK: ended(done)} if done else {},
        capacity=SLOTS,
        **more,  # type: ignore[arg-type]
    )


def drained(seconds: int = 600, step: int = 10, backlog: int = 5000) -> tuple[History, Observation]:
    """A queue that has been drained for a while at one job per second, without arrivals."""
    learnt, now = History(), seen(0.0, backlog)
    for number in range(seconds // step + 1):
        now = seen(1000.0 + number * step, backlog - number * step, step if number else 0)
        learnt = learn(learnt, now)
    return learnt, now


def test_the_observed_rate_and_the_tail() -> None:
    learnt, now = drained()
    made = forecast(learnt, now)
    assert made.basis is Basis.LEARNT
    assert made.p50 is not None
    assert made.p90 is not None
    assert made.p50 == pytest.approx(4400 + 2 * RUN, rel=0.05)
    assert made.p50 < made.p90 < 1.3 * made.p50
    assert made.gpu_seconds == pytest.approx(4400 + SLOTS, rel=0.02)
    assert made.arrivals_per_second == pytest.approx(0.0, abs=1e-3)


def test_an_engine_that_joins_or_leaves_counts_at_once() -> None:
    learnt, now = drained()
    one = forecast(learnt, now).p50
    two = forecast(learnt, replace(now, engines={"m": 2})).p50
    assert one is not None
    assert two is not None
    assert two == pytest.approx(one / 2, rel=0.1)


def test_a_slower_engine_is_noticed_within_minutes() -> None:
    learnt, now = drained(seconds=3600, backlog=20_000)
    waiting = now.waiting_jobs
    for number in range(1, 61):
        slow = seen(now.at + 10 * number, waiting - 5 * number, 5)
        slow = replace(slow, ended={HOOK: ended(5, cost=2.0)})  # half as fast: each job takes twice the time
        learnt = learn(learnt, slow)
    made = forecast(learnt, slow)
    assert made.p50 is not None
    assert made.p50 == pytest.approx(2 * (waiting - 300), rel=0.3)
    assert made.p50 > 1.4 * (waiting - 300)


def test_follow_up_jobs_are_part_of_the_work() -> None:
    learnt, now = drained()
    parents = replace(now, at=now.at + 10, ended={REPORT: ended(10, children={"line": 30}), LINE: ended(30)})
    learnt = learn(learnt, parents)
    alone, with_children = (
        forecast(learnt, replace(now, waiting=(WaitingJobs(key, 1000.0),))).gpu_seconds for key in (LINE, REPORT)
    )
    assert alone is not None
    assert with_children == pytest.approx(4 * alone, rel=0.1)


def test_retries_are_part_of_the_work() -> None:
    learnt = learn(History(), seen(0.0, 10))
    half = replace(ended(10), attempts=20.0, compute=20.0)
    learnt = learn(learnt, replace(seen(10.0, 10), ended={HOOK: half}))
    [left] = forecast(learnt, replace(seen(20.0, 100), running=())).kinds
    assert left.gpu_seconds == pytest.approx(2 * 100, rel=0.01)


@pytest.mark.parametrize("jobs", [3, SLOTS])
def test_what_running_jobs_have_behind_them_is_not_left(jobs: int) -> None:
    """One engine does a second's work in a second: it cannot be done sooner than what is left."""
    learnt, now = drained()
    last = replace(now, waiting=(), ended={})
    ages = (0.0, RUN / 2, RUN, 9 * RUN)
    made = [forecast(learnt, replace(last, running=(RunningJobs(HOOK, jobs, age),))) for age in ages]
    left = [each.gpu_seconds or 0.0 for each in made]
    assert left[0] == pytest.approx(jobs, rel=0.01)
    assert left[0] > 1.5 * left[1] > 2 * left[2] > 0
    assert 0 < left[3] <= left[0]  # of one that takes much longer than any before
    assert all(seconds <= (each.p50 or 0.0) for seconds, each in zip(left, made, strict=True))


def test_arrivals_at_the_recent_rate() -> None:
    learnt, now = History(), seen(0.0, 1000)
    for number in range(400):
        now = seen(1000.0 + 10 * number, 1000 - 5 * number / 10, 10 if number else 0)  # 9.5 arrive, 10 are done
        learnt = learn(learnt, now)
    made = forecast(learnt, now)
    assert made.arrivals_per_second == pytest.approx(0.95, rel=0.1)
    assert made.p50 is not None
    assert made.with_arrivals_p50 is None or made.with_arrivals_p50 > 5 * made.p50
    flooded = replace(learnt, arrivals={HOOK: 5.0})
    assert forecast(flooded, now).with_arrivals_p50 is None


def test_jobs_that_will_be_late() -> None:
    learnt, now = drained()
    groups = (WaitingJobs(HOOK, 1000.0, 1.0, 600.0), WaitingJobs(HOOK, 400.0, 2.0, 1e5), WaitingJobs(HOOK, 100.0, 3.0))
    made = forecast(learnt, replace(now, waiting=groups), publish_at=now.at + 700.0)
    assert made.late == pytest.approx(1000 - (600 - RUN), rel=0.05)
    assert made.late_p90 > made.late
    assert [late.late for late in made.deadlines] == [made.late, 0.0]
    # Late jobs expire, and delay nobody: 1,500 jobs are open, about 680 s of work fit before the publishing time.
    assert made.publish_left == pytest.approx(1500 - 680, rel=0.05)
    assert made.publish_left_p90 is not None
    assert made.publish_left_p90 > 1500 - 680


def test_a_kind_that_was_never_seen_costs_as_much_as_others_and_is_less_certain() -> None:
    learnt, now = drained()
    known, unknown = (
        forecast(learnt, replace(now, waiting=(WaitingJobs(key, 1000.0),), running=())) for key in (HOOK, Key("new"))
    )
    assert unknown.kinds[0].learnt_from == 0
    assert unknown.p50 == pytest.approx(known.p50, rel=0.1)
    assert unknown.p90 is not None
    assert unknown.p50 is not None
    assert unknown.p90 > 1.5 * unknown.p50


@pytest.mark.parametrize(
    ("observation", "basis"),
    [
        (seen(10.0, 0), Basis.EMPTY),
        (seen(10.0, 5, engines=0), Basis.NO_ENGINE),
        (seen(10.0, 5), Basis.NO_HISTORY),
    ],
)
def test_nothing_is_known(observation: Observation, basis: Basis) -> None:
    made = forecast(learn(History(), observation), observation)
    assert made.basis is basis
    assert (made.p50, made.p90) == ((0.0, 0.0) if basis is Basis.EMPTY else (None, None))
    assert made.late == 0


def test_a_job_that_runs_alone() -> None:
    learnt, now = drained()
    last = replace(now, waiting=(), running=(RunningJobs(HOOK, 1.0, RUN),))
    made = forecast(learnt, last)
    assert made.p50 is not None
    assert made.p90 is not None
    assert 1 < made.p50 < made.p90 < 3 * RUN


def test_a_pool_of_one_model_is_the_bottleneck() -> None:
    learnt, now = drained()
    groups = (WaitingJobs(Key("hook", "large"), 1000.0), WaitingJobs(HOOK, 100.0))
    mixed = replace(now, waiting=groups, running=(), engines={"large": 1, "small": 9})
    made = forecast(learnt, mixed)
    assert made.p50 is not None
    assert made.p50 > 900
    assert forecast(learnt, replace(mixed, engines={"small": 10})).unserved == 1000


def test_a_clock_that_is_set_back_and_a_long_silence() -> None:
    learnt, now = drained()
    back = learn(learnt, replace(now, at=now.at - 3600))
    assert back.at == now.at - 3600
    assert forecast(back, now).p50 == pytest.approx(forecast(learnt, now).p50, rel=0.1)
    after = learn(learnt, replace(seen(now.at + 7200, 4000), ended={HOOK: ended(300)}))
    assert after.arrivals == learnt.arrivals  # nobody knows when they came
    assert forecast(after, now).p50 is not None


def test_what_is_learnt_and_said_survives_json() -> None:
    learnt, now = drained()
    parents = replace(now, at=now.at + 10, ended={REPORT: ended(10, children={"line": 30})})
    learnt = replace(learn(learnt, parents), arrived=0.0, gpus=4.0, on_gpu=True)
    kept = json.loads(json.dumps(memory.to_json(learnt)))
    assert memory.from_json(kept) == learnt
    assert memory.from_json({key: value for key, value in kept.items() if key != "gpus"}) == History()
    made = forecast(learnt, replace(now, waiting=(WaitingJobs(HOOK, 10.0, 1.0, 5.0),)), publish_at=now.at + 5)
    assert Forecast.from_json(json.loads(json.dumps(made.to_json()))) == made
    assert memory.from_json({"version": 99}) == History()
    assert memory.from_json({"version": 1}) == History()


def test_seconds_are_of_the_last_engines_while_there_is_none() -> None:
    learnt, now = drained()
    at_first = forecast(learnt, now)
    on_four = replace(now, at=now.at + 10, gpus=4.0, on_gpu=True)
    learnt = learn(learnt, on_four)
    made = forecast(learnt, on_four)
    gone = replace(now, at=now.at + 20, engines={})
    after = forecast(learn(learnt, gone), gone)
    assert (after.on_gpu, after.gpu_seconds) == (True, pytest.approx(made.gpu_seconds))
    assert made.gpu_seconds == pytest.approx(4 * (at_first.gpu_seconds or 0.0), rel=0.1)
    unseen = forecast(replace(learnt, gpus=0.0), gone)
    assert (unseen.gpu_seconds, {kind.gpu_seconds for kind in unseen.kinds}) == (None, {None})


def test_accuracy_leaves_out_what_was_disturbed_or_over_at_once() -> None:
    past = [Past(1, 100, 130, 100), Past(1, 100, 130, 125), Past(2, 100, 130, 200), Past(2, 1, 2, 3)]
    past.append(Past(3, 100, 130, 900, disturbed=True))
    found = accuracy(past)
    assert (found.drains, found.forecasts, found.disturbed) == (2, 3, 1)
    assert found.median_error == pytest.approx(0.2)
    assert found.p90_held == pytest.approx(2 / 3)
    assert accuracy([]).median_error is None


def test_follow_up_jobs_are_no_arrivals_that_disturb_a_forecast() -> None:
    learnt, now = drained()
    same = seen(now.at + 10, now.waiting_jobs, 30)
    assert learn(learnt, same).arrived == pytest.approx(30)
    follow_ups = replace(same, ended={HOOK: ended(30, children={"hook": 30})})
    assert learn(learnt, follow_ups).arrived == 0
