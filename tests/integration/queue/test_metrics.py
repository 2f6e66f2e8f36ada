"""The queue's metrics, read from a real Postgres, and shown when Prometheus asks."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from math import nan
from types import SimpleNamespace
from uuid import uuid4

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from sqlalchemy import Engine, event, insert, text

from thothy_ai.db.connect import make_engine
from thothy_ai.db.models import EngineSessionRow, JobRow
from thothy_ai.queue import metrics
from thothy_ai.queue.collector import READING_SECONDS, QueueCollector, read_redis
from thothy_ai.queue.control import set_paused
from thothy_ai.settings import Settings


def add(engine: Engine, state: str, **values: object) -> None:
    fixed = {"tenant": "t", "kind": "hook", "source_key": "s", "request_digest": "d", "max_attempts": 3}
    with engine.begin() as connection:
        connection.execute(insert(JobRow), {"id": uuid4(), "state": state, **fixed, **values})


def registry_of(engine: Engine) -> CollectorRegistry:
    """After a reading."""
    registry, collector = CollectorRegistry(), QueueCollector(engine)
    registry.register(collector)
    assert collector.read() >= READING_SECONDS
    return registry


def test_metrics_are_read_from_the_tables(engine: Engine) -> None:
    now = datetime.now(UTC)
    hour = timedelta(hours=1)
    add(engine, "queued", deadline=now + hour / 2)
    add(engine, "queued", deadline=now + 5 * hour)
    add(engine, "queued", deadline=now + 20 * hour, not_before=now + hour)
    add(engine, "running", worker="w", started_at=now, lease_until=now + hour, deadline=now + hour / 4)
    add(engine, "running", worker="w", started_at=now, lease_until=now - hour)
    add(engine, "dead", reason="repetition", finished_at=now)
    add(engine, "dead", reason="repetition", finished_at=now - 30 * hour)
    add(engine, "succeeded", finished_at=now)
    registry = registry_of(engine)
    for name, labels, value in [
        ("thothy_database_up", {}, 1),
        ("thothy_queue_paused", {}, 0),
        ("thothy_queue_depth", {"state": "queued"}, 3),
        ("thothy_queue_depth", {"state": "dispatched"}, 0),
        ("thothy_queue_depth", {"state": "running"}, 2),
        ("thothy_queue_delayed_jobs", {}, 1),
        ("thothy_queue_deadline_jobs", {"within": "1h"}, 2),
        ("thothy_queue_deadline_jobs", {"within": "6h"}, 3),
        ("thothy_queue_deadline_jobs", {"within": "24h"}, 4),
        ("thothy_leases", {"state": "held"}, 1),
        ("thothy_leases", {"state": "expired"}, 1),
        ("thothy_dead_jobs", {"kind": "hook", "reason": "repetition"}, 1),
    ]:
        assert registry.get_sample_value(name, labels) == value, (name, labels)


def test_what_people_decided_in_a_week_and_the_residency(engine: Engine) -> None:
    now, day = datetime.now(UTC), timedelta(days=1)
    for kind, review, ago in [
        ("hook", "approved", 1), ("hook", "approved", 6), ("hook", "rejected", 2), ("hook", "approved", 8),
        ("hook", "needs_edit", 1), ("report", "rejected", 1), ("report", None, 1),
    ]:  # fmt: skip
        add(engine, "succeeded", kind=kind, review=review, finished_at=now - ago * day)
    sizes = {"model": "m", "device": "cuda:0", "dtype": "bfloat16", "num_blocks": 1, "block_size": 16}
    for gpus, began, ended in [(2, 9, 6), (0, 2, 1), (4, 20, 8)]:  # of the first, a day of the week; of the last, none
        times = {"started_at": now - began * day, "heartbeat_at": now - ended * day, "ended_at": now - ended * day}
        with engine.begin() as connection:
            connection.execute(insert(EngineSessionRow), {"id": uuid4(), "gpus": gpus, **sizes, **times})
    registry = registry_of(engine)
    for name, kind, value in [("decided", "hook", 3), ("approved", "hook", 2), ("decided", "report", 1)]:
        assert registry.get_sample_value(f"thothy_jobs_{name}", {"kind": kind}) == value
    assert registry.get_sample_value("thothy_jobs_approved", {"kind": "report"}) == 0
    resident = registry.get_sample_value("thothy_resident_seconds")
    assert resident == pytest.approx((2 + 1) * day.total_seconds(), rel=0.01)


def test_the_oldest_waiting_job_is_as_old_as_it_may_run(engine: Engine) -> None:
    assert registry_of(engine).get_sample_value("thothy_queue_oldest_age_seconds") == 0
    now = datetime.now(UTC)
    for minutes in (90, 30):
        then = now - timedelta(minutes=minutes)
        add(engine, "queued", enqueued_at=now - timedelta(hours=2), not_before=then)
    age = registry_of(engine).get_sample_value("thothy_queue_oldest_age_seconds")
    assert age == pytest.approx(90 * 60, abs=60)


def test_a_pause_is_seen(engine: Engine) -> None:
    set_paused(engine, paused=True)
    assert registry_of(engine).get_sample_value("thothy_queue_paused") == 1


def test_scrapes_ask_nothing(engine: Engine) -> None:
    registry = registry_of(engine)
    asked: list[str] = []
    event.listen(engine, "before_cursor_execute", lambda _c, _k, statement, *_: asked.append(statement))
    assert generate_latest(registry) == generate_latest(registry)
    assert asked == []


def test_before_the_first_reading_nothing_is_said(engine: Engine) -> None:
    registry = CollectorRegistry()
    registry.register(QueueCollector(engine))
    assert registry.get_sample_value("thothy_database_up") is None


def test_a_reading_that_never_ends_is_no_answer(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("thothy_ai.queue.collector.STALE_SECONDS", -60.0)
    assert registry_of(engine).get_sample_value("thothy_database_up") == 0


def test_a_long_reading_is_rarely_repeated(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimpleNamespace(monotonic=iter((0.0, 3.0, 3.0)).__next__)  # three seconds for the statements
    monkeypatch.setattr("thothy_ai.queue.collector.time", clock)
    assert QueueCollector(engine).read() == 90.0


def test_tomorrows_partition_is_missed(engine: Engine) -> None:
    def missing(table: str) -> float | None:
        return registry_of(engine).get_sample_value("thothy_partition_missing", {"table": table})

    assert [missing(table) for table in ("attempt", "artifact", "job_event")] == [0, 0, 0]
    name = f"artifact_{datetime.now(UTC) + timedelta(days=1):%Y_%m}"
    with engine.begin() as connection:
        connection.execute(text(f"ALTER TABLE artifact DETACH PARTITION {name}"))
    assert [missing(table) for table in ("attempt", "artifact", "job_event")] == [0, 1, 0]


SESSION = """
    INSERT INTO engine_session (id, engine_name, machine, state, model, device, dtype, gpus, num_blocks, block_size,
        started_at, ready_at, heartbeat_at, ended_at, end_reason)
    VALUES (:id, :name, 'box', :state, 'm', 'none', 'none', 0, 0, 16, now() - make_interval(secs => :ago + 90),
        CASE WHEN :was_ready THEN now() - make_interval(secs => :ago + 60) END, now() - make_interval(secs => :ago),
        CASE WHEN :state = 'ended' THEN now() - make_interval(secs => :ago) END, :reason)
"""


@pytest.mark.parametrize(
    ("sessions", "lost"),
    [  # state, reason, seconds since its end or last heartbeat, whether it was ready
        ([("ready", None, 0, True)], None),
        ([("ended", "killed", 700, True)], 700),
        ([("ended", "failed", 700, True)], 700),
        ([("ended", "silent", 700, True)], 700),
        ([("ready", None, 700, True)], 700),  # and no reaper has ended it
        ([("ended", "stopped", 700, True)], None),
        ([("ended", "killed", 90_000, True)], None),
        ([("ended", "failed", 700, False)], None),  # it has never been ready
        ([("ended", "killed", 900, True), ("ready", None, 0, True)], None),
        ([("ended", "killed", 900, True), ("loading", None, 0, False)], 900),
        ([("ended", "killed", 900, True), ("ended", "failed", 100, False)], 900),
        ([("ended", "killed", 900, True), ("ended", "stopped", 100, False)], None),
        ([("ended", "stopped", 900, True), ("ready", None, 700, True)], 700),  # and no reaper has ended it
        ([("ended", "stopped", 900, True), ("loading", None, 0, False)], None),
    ],
)
def test_engines_that_are_lost(
    engine: Engine, sessions: list[tuple[str, str | None, int, bool]], lost: float | None
) -> None:
    with engine.begin() as connection:
        for state, reason, ago, was_ready in sessions:
            row = {"id": uuid4(), "name": "box-1", "state": state, "reason": reason, "ago": ago}
            connection.execute(text(SESSION), row | {"was_ready": was_ready})
    found = registry_of(engine).get_sample_value("thothy_lost_engine_seconds", {"engine": "box-1", "machine": "box"})
    assert found == (None if lost is None else pytest.approx(lost, abs=60))


def test_redis_is_up_while_it_answers() -> None:
    read_redis(lambda: (7.0, 2.0))
    shown = [metrics.REDIS_UP, metrics.LIST_LENGTH, metrics.URGENT_LENGTH]
    assert [next(iter(gauge.collect())).samples[0].value for gauge in shown] == [1, 7, 2]
    read_redis(lambda: (nan, nan))
    assert next(iter(metrics.REDIS_UP.collect())).samples[0].value == 0


def test_a_scrape_survives_a_postgres_that_is_away(settings: Settings) -> None:
    away = settings.model_copy(
        update={"database_url": type(settings.database_url)("postgresql+psycopg://u@127.0.0.1:9/x")}
    )
    registry = registry_of(make_engine(away))
    assert registry.get_sample_value("thothy_database_up") == 0
    assert registry.get_sample_value("thothy_queue_paused") is None


def test_registering_asks_nothing(settings: Settings) -> None:
    away = settings.model_copy(
        update={"database_url": type(settings.database_url)("postgresql+psycopg://u@127.0.0.1:9/x")}
    )
    collector = QueueCollector(make_engine(away))
    assert list(collector.describe()) == []
