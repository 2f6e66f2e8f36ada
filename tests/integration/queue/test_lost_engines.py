"""Engines, workers and machines that are lost: where their jobs go, and what they are charged."""

from __future__ import annotations

import pytest
from redis import Redis
from sqlalchemy import text

from tests.support.engine_lists import LEASE, A, B, listed, start
from tests.support.engine_rows import fall_silent, register
from tests.support.queue_bench import Queue, eventually, running
from thothy_ai.db.fragments import ENGINE_SILENCE_SECONDS, FREE_MACHINE_LOSSES
from thothy_ai.db.statements import statement
from thothy_ai.queue.dispatcher import Dispatcher
from thothy_ai.queue.reaper import Reaper

LOST = {"lease_seconds": LEASE, "worker_seconds": 1500}


def test_what_waited_for_an_engine_that_lost_its_worker_is_queued_again(queue: Queue) -> None:
    session = register(queue, "a")
    queue.enqueue("ok")
    queue.dispatch()
    for silent, recalled in ((None, []), (2000, []), (2300, [("a", 1)])):
        queue.rows(
            "UPDATE engine_session SET worker_heartbeat_at = now() - make_interval(secs => CAST(:s AS float8))"
            " WHERE id = :id",
            s=silent,
            id=session,
        )
        assert [tuple(row)[:2] for row in queue.ask("queue/recall_lost", worker_seconds=2200)] == recalled
    assert queue.count("queued") == 1


@pytest.mark.parametrize(
    ("state", "ready_seconds", "recalled"), [("loading", None, 0), ("ready", 2000, 0), ("ready", 4000, 1)]
)
def test_an_engine_that_starts_again_has_time_to_get_a_worker(
    queue: Queue, state: str, ready_seconds: int | None, recalled: int
) -> None:
    session = register(queue, "b")
    queue.enqueue("ok")
    queue.dispatch()
    queue.rows(
        "UPDATE engine_session SET worker_heartbeat_at = NULL, state = :state,"
        " ready_at = now() - make_interval(secs => CAST(:ready AS float8)) WHERE id = :id",
        state=state,
        ready=ready_seconds,
        id=session,
    )
    assert len(queue.ask("queue/recall_lost", worker_seconds=3000)) == recalled
    assert queue.count("queued") == recalled


def test_what_waited_for_a_lost_engine_goes_to_another_in_order(queue: Queue, redis: Redis) -> None:
    lost = register(queue, "a")
    ids = queue.enqueue(*(f"ok {n}" for n in range(6)))
    planned = [row.id for row in queue.rows("SELECT id FROM job ORDER BY source_key, id")]
    assert sorted(ids) == sorted(planned)
    with running(Dispatcher(queue.settings)):
        eventually(lambda: redis.llen(A) == 6)
        fall_silent(queue, lost)
        register(queue, "b")
        with running(Reaper(queue.settings)):  # which gives engines time to be heard of
            eventually(lambda: redis.llen(B) == 6)
            eventually(lambda: not redis.exists(A))
    assert [hint.job_id for hint in listed(redis, B) if hint] == planned
    assert set(queue.events(ids[0])) == {"republished"}
    assert queue.rows("SELECT DISTINCT failures, engine_deaths FROM job") == [(0, 0)]


@pytest.mark.parametrize("state", ["loading", "ready"])
def test_an_engine_that_starts_again_under_its_name_keeps_what_waits_for_it(queue: Queue, state: str) -> None:
    lost = register(queue, "a")
    queue.enqueue("ok")
    queue.dispatch()
    fall_silent(queue, lost, 1000)
    register(queue, "a", state=state)
    assert queue.ask("queue/recall_lost", worker_seconds=22) == []
    assert queue.count("dispatched") == 1


@pytest.mark.parametrize("ended", [False, True])
def test_an_engine_is_lost_once_nothing_was_heard_of_it_for_long_enough(queue: Queue, ended: bool) -> None:
    lost = register(queue, "a")
    queue.enqueue("ok")
    queue.dispatch()
    if ended:
        queue.rows("UPDATE engine_session SET ended_at = now(), state = 'ended'")
    with queue.engine.begin() as connection:  # in which no time passes
        heard = f"now() - interval '{ENGINE_SILENCE_SECONDS - 0.1} s'"
        connection.execute(text(f"UPDATE engine_session SET heartbeat_at = {heard}"))
        assert connection.execute(statement("queue/recall_lost"), {"worker_seconds": 22}).all() == []
    fall_silent(queue, lost, ENGINE_SILENCE_SECONDS + 0.1)
    assert [(row.engine_name, row.jobs) for row in queue.ask("queue/recall_lost", worker_seconds=22)] == [("a", 1)]
    assert queue.count("queued") == 1


def test_jobs_of_a_lost_machine_are_taken_back_uncharged_and_before_their_leases_expire(queue: Queue) -> None:
    session = register(queue, "a", silent=ENGINE_SILENCE_SECONDS + 1)
    taken, alive, elsewhere = queue.enqueue("ok", "ok", "ok")
    start(queue, taken, session, beat=1600)
    start(queue, alive, session, beat=1400)
    start(queue, elsewhere, register(queue, "b"), beat=1600)
    assert [row.id for row in queue.ask("queue/reap_lost", **LOST)] == [taken]
    job = queue.job(taken)
    assert (job.state, job.failures, job.engine_deaths, job.reason) == ("queued", 0, 0, "machine_lost")
    assert (queue.outcomes(taken), queue.events(taken)) == (["lost"], ["lost"])
    assert [queue.job(each).state for each in (alive, elsewhere)] == ["running", "running"]


def test_a_job_that_takes_machines_down_again_and_again_comes_to_an_end(queue: Queue) -> None:
    session = register(queue, "a", silent=ENGINE_SILENCE_SECONDS + 1)
    [job_id] = queue.enqueue("ok")
    seen = []
    while queue.job(job_id).state != "dead":
        assert len(seen) < 9
        start(queue, job_id, session, beat=1600)
        queue.ask("queue/reap_lost", **LOST)
        seen.append(queue.job(job_id).engine_deaths)
    assert seen == [0] * FREE_MACHINE_LOSSES + [1, 2, 3, 4]
    assert queue.job(job_id).reason == "engine_killer"


def test_a_job_whose_cancellation_was_requested_is_cancelled(queue: Queue) -> None:
    session = register(queue, "a", state="ended")
    [job_id] = queue.enqueue("ok")
    start(queue, job_id, session, beat=1600, cancel_requested=True)
    queue.ask("queue/reap_lost", **LOST)
    assert queue.job(job_id).state == "cancelled"
