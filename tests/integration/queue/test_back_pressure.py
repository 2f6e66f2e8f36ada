"""A queue that grows faster than it drains: Postgres grows, Redis does not; what is next is found without a search."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from redis import Redis
from sqlalchemy import text

from tests.support.echo_kind import Echo
from tests.support.engine_rows import register_first
from tests.support.patience import PATIENCE
from tests.support.queue_bench import Queue, eventually, running
from thothy_ai.db.statements import statement
from thothy_ai.producer.drafts import EnqueueOptions
from thothy_ai.queue.dispatcher import BY_INDEX, Dispatcher
from thothy_ai.queue.reaper import Reaper
from thothy_ai.queue.status import queue_status

KEY = "thothy:jobs@first"
JOBS = 20_000
FILL = """
    INSERT INTO job (id, tenant, kind, priority, deadline, not_before, delayed, source_key, request_digest,
                     max_attempts, model)
    SELECT uuidv7(), 'default', 'echo', n % 3, CASE WHEN n % 3 = 0 THEN now() + interval '1 day' END,
           now() + :delay, :delay > interval '1 minute', md5((n / 10)::text), 'd', 3, :model
    FROM generate_series(1, :jobs) AS n
"""
NOW = timedelta(0)
ROOM = {"any_limit": 100, "models": ["m"], "teams": [0], "limits": [100], "floors": [None]}


def run_plan(queue: Queue, name: str, **parameters: object) -> list[dict[str, Any]]:
    """The nodes of its plan, as it ran; what it did is undone."""
    explain = text("EXPLAIN (ANALYZE, FORMAT JSON) " + statement(name).text)
    with queue.engine.connect() as connection:
        for order in BY_INDEX:
            connection.execute(text(order))
        [[found]] = connection.execute(explain, parameters).all()
        connection.rollback()
    return list(nodes(found[0]["Plan"]))


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from nodes(child)


def scans(plan: list[dict[str, Any]]) -> dict[str, int]:
    """Rows read from the job table, by how they were found."""
    found: dict[str, int] = {}
    for node in plan:
        if node.get("Relation Name") == "job" and "Scan" in node["Node Type"]:
            way = str(node.get("Index Name", node["Node Type"]))
            rows = (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"]
            found[way] = found.get(way, 0) + int(rows)
    return found


@pytest.mark.parametrize("statistics", ["of a full queue", "of an empty queue", "of a drained queue", "none"])
def test_what_is_next_is_read_off_the_index(queue: Queue, statistics: str) -> None:
    if statistics == "of an empty queue":
        queue.rows("ANALYZE job")
    if statistics == "of a drained queue":
        queue.rows(FILL, jobs=JOBS, delay=NOW, model=None)
        queue.rows("UPDATE job SET state = 'cancelled', finished_at = now()")
        queue.rows("ANALYZE job")
    queue.rows(FILL, jobs=JOBS, delay=NOW, model=None)
    if statistics == "of a full queue":
        queue.rows("ANALYZE job")
    plan = run_plan(queue, "queue/due", **ROOM)
    assert scans(plan) == {"ix_job_queued": 100, "ix_job_queued_model": 0}
    sorted_rows = [node["Actual Rows"] for node in plan if node["Node Type"] == "Sort"]
    assert max(sorted_rows) == 100  # of what is next, not of the queue
    ids = [row.id for row in queue.ask("queue/due", **ROOM)]
    assert scans(run_plan(queue, "queue/dispatch", ids=ids, engine="a")) == {"pk_job": 200}


@pytest.mark.parametrize("waiting", ["missing", None])
def test_what_waits_for_another_model_is_not_read(queue: Queue, waiting: str | None) -> None:
    """Neither hinders the other: 20,000 jobs for a model that no engine serves, or for any."""
    queue.rows(FILL, jobs=JOBS, delay=NOW, model=waiting)
    [behind] = queue.enqueue("ok", model=None if waiting else "m")
    queue.rows("ANALYZE job")
    read = scans(run_plan(queue, "queue/due", **ROOM | ({} if waiting else {"any_limit": 0})))
    assert 1 <= sum(read.values()) <= 2  # a few of each model are read first, and again with the rest
    assert behind in {row.id for row in queue.ask("queue/due", **ROOM)}


def test_jobs_for_later_are_not_read_until_their_time_comes(queue: Queue) -> None:
    queue.rows(FILL, jobs=JOBS, delay=timedelta(hours=6), model=None)
    [due] = queue.enqueue("ok")
    queue.rows("ANALYZE job")
    assert scans(run_plan(queue, "queue/due", **ROOM))["ix_job_queued"] == 1
    assert scans(run_plan(queue, "queue/admit_delayed", limit=5000)) == {"ix_job_delayed": 0, "pk_job": 0}
    assert [hint.job_id for hint in queue.dispatch()] == [due]
    status = queue_status(queue.engine)
    assert (status["queued"].jobs, status["queued"].delayed) == (JOBS, JOBS)


def test_a_delayed_job_goes_out_when_its_time_comes_and_not_before(queue: Queue, redis: Redis) -> None:
    later = EnqueueOptions(not_before=datetime.now(UTC) + timedelta(hours=1))
    soon = EnqueueOptions(not_before=datetime.now(UTC) + timedelta(seconds=1.5))
    far, near = (job.id for job in queue.producer.enqueue_many([(Echo(text="ok"), later), (Echo(text="ok"), soon)]))
    assert (queue.job(far).delayed, queue.job(near).delayed) == (True, False)
    register_first(queue)
    with running(Dispatcher(queue.settings)):
        eventually(lambda: queue.job(near).state == "dispatched")
        assert queue.job(near).dispatched_at >= queue.job(near).not_before
        assert queue.job(far).state == "queued"
        queue.rows("UPDATE job SET not_before = now() WHERE id = :id", id=far)
        eventually(lambda: queue.job(far).state == "dispatched")
    assert queue.job(far).delayed is False


def test_redis_stays_shallow_and_everything_goes_out_in_order(queue: Queue, redis: Redis) -> None:
    register_first(queue)
    queue.rows(FILL, jobs=JOBS, delay=NOW, model=None)
    queue.rows("ANALYZE job")
    planned = [row.id for row in queue.rows("SELECT id FROM job ORDER BY priority DESC, source_key, id LIMIT 3000")]
    taken: list[str] = []
    deepest = 0
    with running(Dispatcher(queue.settings.model_copy(update={"dispatch_min_depth": 200}))):
        while len(taken) < len(planned):
            deepest = max(deepest, redis.llen(KEY))
            element = redis.brpop([KEY], timeout=PATIENCE)
            assert element, "nothing comes"
            taken.append(json.loads(element[1])["headers"]["id"])
    assert taken[:3000] == [f"{job_id}.1" for job_id in planned]
    assert deepest <= 200
    assert queue.count("queued") >= JOBS - 3000 - 200 * 2


def test_a_night_s_worth_of_deadlines_expires_in_batches(queue: Queue) -> None:
    queue.rows(FILL, jobs=12_000, delay=NOW, model=None)
    queue.rows("UPDATE job SET deadline = now() - interval '1 second' WHERE priority > 0")
    with running(Reaper(queue.settings.model_copy(update={"reap_interval_seconds": 60}))):
        eventually(lambda: queue.count("expired") == 8_000)
    batches = queue.rows("SELECT count(*) FROM job WHERE state = 'expired' GROUP BY finished_at ORDER BY 1")
    assert [jobs for [jobs] in batches] == [3_000, 5_000]
    assert queue.rows("SELECT count(*) FROM job_event WHERE event = 'expired'") == [(8_000,)]
