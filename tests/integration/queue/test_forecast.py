"""Forecasts over a real Postgres: what is read from the tables, what is kept, and how past forecasts are judged."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from prometheus_client import CollectorRegistry
from sqlalchemy import Engine, insert, text

from tests.support.forecast_rows import COMPUTE_SECONDS, history, job, past_drains, recorded, resident
from tests.support.queue_bench import eventually, running
from thothy_ai.admin.model_aliases import set_alias
from thothy_ai.db.models import AttemptRow, ForecastRow, JobRow
from thothy_ai.queue.collector import QueueCollector
from thothy_ai.queue.control import set_paused
from thothy_ai.queue.forecast.forecaster import Forecaster
from thothy_ai.queue.forecast.learning import History
from thothy_ai.queue.forecast.outlook import Basis, Forecast
from thothy_ai.queue.forecast.store import asking, current, observe, past_accuracy, read_kept
from thothy_ai.queue.forecast.values import Key
from thothy_ai.queue.pauses import pause_part, resume_part
from thothy_ai.settings import PublishingTime, Settings


def test_a_service_learns_from_its_history_at_once(engine: Engine) -> None:
    history(engine, resident(engine))
    past_drains(engine, 5)
    for _ in range(30):
        job(engine, "queued")
    made = current(engine)
    assert made.basis is Basis.LEARNT
    assert made.open_jobs == 30
    [left] = made.kinds
    assert left.gpu_seconds == pytest.approx(30 * COMPUTE_SECONDS * 1.25 * 2, rel=0.01)  # two GPUs, a quarter retried
    assert made.p50 is not None
    assert made.p90 is not None
    assert 60 < made.p50 < made.p90 < 1000


def test_what_is_observed(engine: Engine) -> None:
    session = resident(engine)
    now = datetime.now(UTC)
    with engine.begin() as connection:
        connection.execute(text("INSERT INTO model_alias (alias, model_name) VALUES ('best', 'large')"))
    job(engine, "queued", model="best", deadline=now + timedelta(seconds=630))
    job(engine, "dispatched", dispatched_at=now)
    job(engine, "queued", delayed=True, not_before=now + timedelta(hours=2))
    times = {"started_at": now - timedelta(seconds=30), "lease_until": now + timedelta(seconds=60)}
    job(engine, "running", worker="w", **times)
    parent = job(engine, "succeeded", kind="report", finished_at=now, engine_session_id=session)
    job(engine, "queued", kind="translation", parent_id=parent)
    job(engine, "expired", finished_at=now, engine_session_id=session)
    resident(engine, state="loading")
    resident(engine, heartbeat_at=now - timedelta(hours=1))
    resident(engine, ended_at=now, state="ended")
    with engine.connect() as connection:
        seen = observe(asking(connection), 0.0)
    assert {(group.key, group.jobs) for group in seen.waiting} == {
        (Key("hook", "large"), 1), (Key("hook"), 1), (Key("translation"), 1)
    }  # fmt: skip
    [deadline] = [group.deadline for group in seen.waiting if group.key.model]
    assert deadline is not None
    assert (deadline % 60, deadline <= 600) == (0, True)
    [group] = seen.running
    assert (group.jobs, group.age >= 30) == (1, True)
    assert seen.engines == {"large": 1}
    assert seen.capacity == 20
    assert seen.gpus == 2
    assert seen.delayed == {Key("hook"): 1}
    assert seen.ended[Key("report", "large")].finished == 1
    assert seen.ended[Key("report", "large")].children == {"translation": 1}
    assert seen.ended[Key("hook", "large")].finished == 0  # an expired job took nothing
    assert seen.ended[Key("hook", "large")].left == 1


def test_a_queue_without_an_engine_or_history(engine: Engine) -> None:
    assert current(engine).basis is Basis.EMPTY
    job(engine, "queued")
    made = current(engine)
    assert (made.basis, made.p50, made.gpu_seconds) == (Basis.NO_ENGINE, None, None)
    resident(engine)
    assert current(engine).basis is Basis.NO_HISTORY


@pytest.mark.parametrize(
    ("reason", "ago", "next_state", "seconds"),
    [
        ("killed", 10, None, 20),
        ("failed", 10, "loading", 20),
        ("killed", 35, None, 7.5),  # it takes longer than the last time
        ("killed", 70, "loading", None),
        ("stopped", 10, None, None),
        ("stopped", 10, "loading", 20),
        ("silent", 10, None, None),
        ("silent", 10, "loading", 20),
        ("killed", 10, "ready", None),
    ],
)
def test_engines_that_start_again(
    engine: Engine, reason: str, ago: float, next_state: str | None, seconds: float | None
) -> None:
    """The engine took 30 s to load; a second one is ready all the time."""
    now = datetime.now(UTC)
    resident(engine, engine_name="steady", ready_at=now - timedelta(minutes=9))
    ended = now - timedelta(seconds=ago)
    began = now - timedelta(minutes=5)
    times = {"started_at": began, "ready_at": began + timedelta(seconds=30), "ended_at": ended, "heartbeat_at": ended}
    resident(engine, engine_name="a", state="ended", end_reason=reason, **times)
    if next_state:
        resident(engine, engine_name="a", state=next_state, ready_at=now if next_state == "ready" else None)
    with engine.connect() as connection:
        seen = observe(asking(connection), 0.0)
    late = (datetime.now(UTC) - now).total_seconds()
    assert [max(seconds - late, 7.5) <= each <= seconds for each in seen.until_back] == ([True] if seconds else [])
    assert seen.engines == {"large": 2 if next_state == "ready" else 1}
    assert (seen.capacity, seen.gpus) == (20, 2)
    assert seen.joined is not None
    joined = now if next_state == "ready" else now - timedelta(minutes=9)
    assert seen.joined == pytest.approx(joined.timestamp(), abs=1)


def test_attempts_that_ended_with_an_engine_are_no_retries(engine: Engine) -> None:
    session = resident(engine)
    history(engine, session)
    with engine.connect() as connection:
        before = observe(asking(connection), 0.0).ended[Key("hook", "large")]
    now = datetime.now(UTC)
    fixed = {"tenant": "t", "kind": "hook", "worker": "w", "engine_session_id": session, "compute_seconds": 1.0}
    rows = [
        {
            "job_id": job(engine, "queued"),
            "attempt": 1,
            "outcome": outcome,
            "started_at": now,
            "finished_at": now,
            **fixed,
        }
        for outcome in ("lost", "released", "cancelled")
    ]
    with engine.begin() as connection:
        connection.execute(insert(AttemptRow), rows)
        after = observe(asking(connection), 0.0).ended[Key("hook", "large")]
    assert (before.attempts, after.attempts) == (50, 50)
    assert after.compute == before.compute + 3


def test_jobs_of_a_model_that_nobody_serves_are_counted_apart(engine: Engine) -> None:
    history(engine, resident(engine))
    job(engine, "queued")
    job(engine, "queued", model="absent")
    made = current(engine)
    assert (made.open_jobs, made.unserved) == (1, 1)


def test_jobs_of_adapters_are_their_model_s_while_an_engine_has_them(engine: Engine) -> None:
    session = resident(engine, adapters={"acme": {"digest": "1"}, "nova": {"digest": "2"}})
    history(engine, session)
    set_alias(engine, "house", "acme")
    for model in ("acme", "house", "large", "nova", "absent"):
        job(engine, "queued", model=model)
    times = {"started_at": datetime.now(UTC), "lease_until": datetime.now(UTC) + timedelta(seconds=60)}
    job(engine, "running", model="house", adapter="acme", worker="w", **times)
    made = current(engine)
    assert (made.open_jobs, made.unserved) == (5, 1)
    with engine.connect() as connection:
        seen = observe(asking(connection), 0.0)
    assert {group.key for group in seen.running} == {Key("hook", "large")}
    pause_part(engine, "model", "acme", by="test")  # its jobs, and those of its alias, wait for the pause to end
    assert current(engine).open_jobs == 3
    resume_part(engine, "model", "acme")
    with engine.begin() as connection:
        connection.execute(text("UPDATE engine_session SET adapters = '{}' WHERE id = :id"), {"id": session})
    made = current(engine)
    assert (made.open_jobs, made.unserved) == (2, 4)  # the one that runs goes on


def test_jobs_that_miss_their_deadline_and_the_publishing_time(engine: Engine) -> None:
    history(engine, resident(engine))
    job(engine, "queued", deadline=datetime.now(UTC) + timedelta(minutes=600))
    fixed = {"tenant": "t", "kind": "hook", "source_key": "s", "request_digest": "d", "max_attempts": 3}
    soon = datetime.now(UTC) + timedelta(minutes=6)
    with engine.begin() as connection:
        rows = [{"id": uuid4(), "state": "queued", "deadline": soon, **fixed} for _ in range(400)]
        connection.execute(insert(JobRow), rows)
    publish = (datetime.now(UTC) + timedelta(minutes=9)).strftime("%H:%M UTC")
    made = current(engine, PublishingTime.parse(publish))
    assert 270 < made.late < 330  # at least 5 minutes less a run are about 100 jobs of 2.5 s
    assert made.late <= made.late_p90
    assert made.deadlines[-1].late == 0
    assert made.publish_left is not None
    assert made.publish_left_p90 is not None
    assert 0 < made.publish_left <= made.publish_left_p90


def test_the_forecaster_keeps_records_and_judges(engine: Engine, settings: Settings) -> None:
    session = resident(engine)
    history(engine, session)
    waiting = [job(engine, "queued", enqueued_at=datetime.now(UTC) - timedelta(seconds=1)) for _ in range(5)]
    with running(Forecaster(settings)):
        eventually(lambda: recorded(engine))
        with engine.connect() as connection:
            kept = read_kept(asking(connection))
        assert kept is not None
        assert kept.fresh
        assert kept.forecast.open_jobs == 5
        with engine.begin() as connection:
            connection.execute(
                text("UPDATE job SET state = 'succeeded', finished_at = now() WHERE id = ANY(:ids)"), {"ids": waiting}
            )
        eventually(lambda: all(row.ended_at for row in recorded(engine)))
    with engine.connect() as connection:
        last = connection.execute(text("SELECT max(finished_at) FROM job")).scalar_one()
    assert {row.ended_at for row in recorded(engine)} == {last}


def test_the_error_of_past_forecasts(engine: Engine) -> None:
    now = datetime.now(UTC)
    rows = [
        # p50, p90, actual, arrived, disturbed
        (100, 120, 110, 0, False),
        (100, 120, 125, 5, False),
        (100, 120, 100, 0, False),
        (100, 120, 500, 0, True),
        (100, 120, 500, 50, False),
    ]
    with engine.begin() as connection:
        for number, (p50, p90, actual, arrived, disturbed) in enumerate(rows):
            made = now - timedelta(hours=1, seconds=number)
            connection.execute(
                insert(ForecastRow),
                {"made_at": made, "began_at": now - timedelta(hours=2), "open_jobs": 100, "p50_seconds": p50,
                 "p90_seconds": p90, "late_jobs": 0, "arrived": arrived, "disturbed": disturbed,
                 "ended_at": made + timedelta(seconds=actual)},
            )  # fmt: skip
    found = past_accuracy(engine)
    assert (found.drains, found.forecasts, found.disturbed) == (1, 3, 2)
    assert found.median_error == pytest.approx(10 / 110)
    assert found.p90_held == pytest.approx(2 / 3)


def sample(registry: CollectorRegistry, collector: QueueCollector, name: str, **labels: str) -> float | None:
    """A forecast's metric in the latest reading."""
    collector.read()
    return registry.get_sample_value(f"thothy_forecast_{name}", labels)


def test_the_metrics_are_those_of_the_latest_forecast(engine: Engine, settings: Settings) -> None:
    registry = CollectorRegistry()
    registry.register(collector := QueueCollector(engine))
    assert sample(registry, collector, "empty_seconds", quantile="0.5") is None  # none was made
    history(engine, resident(engine))
    job(engine, "queued")
    with running(Forecaster(settings)):
        eventually(lambda: sample(registry, collector, "empty_seconds", quantile="0.9"))
    assert sample(registry, collector, "late_jobs", quantile="0.5") == 0
    engine_seconds = sample(registry, collector, "gpu_seconds", kind="hook")
    assert engine_seconds == pytest.approx(COMPUTE_SECONDS * 1.25 * 2, rel=0.01)


def test_without_an_engine_the_metric_is_infinite(engine: Engine, settings: Settings) -> None:
    job(engine, "queued")
    registry = CollectorRegistry()
    registry.register(collector := QueueCollector(engine))
    with running(Forecaster(settings)):
        eventually(lambda: sample(registry, collector, "empty_seconds", quantile="0.5") == float("inf"))


def test_a_paused_queue_is_forecast_as_if_it_resumed_now(engine: Engine) -> None:
    history(engine, resident(engine))
    job(engine, "queued")
    set_paused(engine, paused=True)
    made = current(engine)
    assert made.paused
    assert made.p50 is not None
    assert made.after(1000.0) == made


def test_a_damaged_state_is_forgotten(engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(text("INSERT INTO forecast_state (name, learnt, latest) VALUES ('default', '{}', '{}')"))
    with engine.connect() as connection:
        assert read_kept(asking(connection)) is None
    assert isinstance(current(engine), Forecast)
    assert History().at == 0
