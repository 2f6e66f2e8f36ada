"""The reaper: every rule, and what it leaves alone."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

from prometheus_client import REGISTRY

from tests.support.hours import wait_out_the_hour
from tests.support.patience import PATIENCE
from tests.support.queue_bench import Queue, eventually, runner_bench
from thothy_ai.queue.broker import Broker
from thothy_ai.queue.hints import Hint
from thothy_ai.queue.reaper import Reaper


@contextmanager
def reaping(queue: Queue, **changes: object) -> Iterator[Reaper]:
    """No worker holds a lease in most of these tests: the reaper need not give any the time to extend it."""
    reaper = Reaper(queue.settings.model_copy(update={"lease_seconds": 0.1} | changes))
    thread = threading.Thread(target=reaper.run)
    thread.start()
    try:
        yield reaper
    finally:
        reaper.stop()
        thread.join(PATIENCE)
        assert not thread.is_alive()


def run_away(queue: Queue, job_id: UUID, lease_seconds: float = 0) -> None:
    """A worker claims it and never sends a heartbeat."""
    hints = queue.dispatch()
    assert [hint.job_id for hint in hints] == [job_id]
    queue.ask(
        "worker/claim",
        ids=[job_id],
        dispatch_nos=[hints[0].dispatch_no],
        worker="gone",
        lease_seconds=lease_seconds,
        engine_session_id=None,
        model_name="",
    )


def test_a_lease_that_ran_out_is_a_failure_and_the_job_runs_again(queue: Queue) -> None:
    [job_id] = queue.enqueue("ok")
    run_away(queue, job_id)
    with reaping(queue):
        eventually(lambda: queue.job(job_id).state == "queued")
    job = queue.job(job_id)
    assert (job.failures, job.attempt, job.worker, job.reason) == (1, 1, None, "lease_lost")
    assert queue.outcomes(job_id) == ["lost"]
    assert queue.events(job_id) == ["lost"]


def test_what_a_reaper_does_and_whether_it_leads_is_counted(queue: Queue) -> None:
    def lost() -> float:
        return REGISTRY.get_sample_value("thothy_leases_lost_total") or 0.0

    before, began = lost(), time.time()
    [job_id] = queue.enqueue("ok")
    run_away(queue, job_id)
    role = {"role": "reaper"}
    with reaping(queue):
        eventually(lambda: queue.job(job_id).state == "queued")
        eventually(lambda: REGISTRY.get_sample_value("thothy_leads", role) == 1)
        eventually(lambda: (REGISTRY.get_sample_value("thothy_last_round_timestamp_seconds", role) or 0) >= began)
    assert lost() == before + 1
    assert REGISTRY.get_sample_value("thothy_leads", role) == 0, "it has stopped"


def test_a_job_whose_failures_are_used_up_is_dead(queue: Queue) -> None:
    [job_id] = queue.enqueue("ok", max_attempts=2)
    with reaping(queue):
        run_away(queue, job_id)
        eventually(lambda: queue.job(job_id).state == "queued" and queue.job(job_id).not_before < datetime.now(UTC))
        run_away(queue, job_id)
        eventually(lambda: queue.job(job_id).state == "dead")
    assert (queue.job(job_id).reason, queue.outcomes(job_id)) == ("lease_lost", ["lost", "lost"])


def test_the_draft_of_a_job_whose_worker_is_lost_at_last_is_kept_for_a_person(queue: Queue) -> None:
    [job_id] = queue.enqueue("ok", max_attempts=2)
    rejected = """
        INSERT INTO artifact (job_id, kind, locale, attempt, tenant, verdict, reason, body, text, draft)
        SELECT id, kind, 'en', 1, tenant, 'rejected', 'repetition', '{}', '', true FROM job"""
    queue.rows(rejected)
    queue.rows("UPDATE job SET failures = 1, attempt = 1")
    with reaping(queue):
        run_away(queue, job_id)
        eventually(lambda: queue.job(job_id).state == "succeeded")
    assert (queue.job(job_id).review, queue.job(job_id).reason) == ("needs_edit", "lease_lost")
    assert [row.event for row in queue.rows("SELECT event FROM job_event")] == ["kept"]


def test_a_lease_that_holds_is_left_alone(queue: Queue) -> None:
    [held] = queue.enqueue("ok")
    run_away(queue, held, lease_seconds=60)
    [lost] = queue.enqueue("ok")
    run_away(queue, lost)
    with reaping(queue):
        eventually(lambda: queue.job(lost).state == "queued")
    assert queue.job(held).state == "running"


def test_no_lease_is_taken_before_its_worker_could_have_extended_it(queue: Queue) -> None:
    [job_id] = queue.enqueue("ok")
    run_away(queue, job_id)
    [marker] = queue.enqueue("ok", deadline=datetime.now(UTC) + timedelta(hours=1))
    queue.rows("UPDATE job SET deadline = now() WHERE id = :id", id=marker)
    with reaping(queue, lease_seconds=600):
        eventually(lambda: queue.job(marker).state == "expired")
        assert queue.job(job_id).state == "running"


def test_a_lost_job_that_is_to_be_cancelled_is_cancelled(queue: Queue) -> None:
    [job_id] = queue.enqueue("ok")
    run_away(queue, job_id)
    assert queue.producer.cancel(job_id)
    with reaping(queue):
        eventually(lambda: queue.job(job_id).state == "cancelled")


def test_a_lost_dispatch_is_queued_again_and_one_that_waits_in_redis_is_not(queue: Queue) -> None:
    republished = REGISTRY.get_sample_value("thothy_dispatches_republished_total") or 0.0
    lost, waiting = queue.enqueue("ok 1", "ok 2")
    assert {hint.job_id for hint in queue.dispatch()} == {lost, waiting}
    broker = Broker(queue.settings)
    broker.publish([Hint(waiting, 1)], engine="first")
    with reaping(queue, dispatch_timeout_seconds=0.1):
        eventually(lambda: queue.job(lost).state == "queued")
    broker.close()
    assert queue.events(lost) == ["republished"]
    assert REGISTRY.get_sample_value("thothy_dispatches_republished_total") == republished + 1
    assert queue.job(waiting).state == "dispatched"
    [hint] = queue.dispatch()
    assert hint == Hint(lost, 2)
    with runner_bench(queue) as bench:
        bench.runner.hand_over(Hint(lost, 1))  # the lost message turns up all the same
        eventually(lambda: bench.done)
        assert queue.job(lost).state == "dispatched"
        bench.runner.hand_over(hint)
        eventually(lambda: queue.job(lost).state == "succeeded")


def test_deadlines_that_passed_end_unclaimed_jobs(queue: Queue) -> None:
    later = datetime.now(UTC) + timedelta(hours=1)
    [dispatched] = queue.enqueue("ok 1", deadline=later)
    queue.dispatch()
    [queued] = queue.enqueue("ok 2", deadline=later)
    queue.rows("UPDATE job SET deadline = now()")
    [open_] = queue.enqueue("ok 3", deadline=later)
    with reaping(queue):
        eventually(lambda: queue.count("expired") == 2)
    assert [queue.job(job_id).state for job_id in (queued, dispatched, open_)] == ["expired", "expired", "queued"]
    assert queue.events(queued) == ["expired"]


def test_an_engine_that_fell_silent_ended_with_its_last_heartbeat(queue: Queue) -> None:
    silent, lively = uuid4(), uuid4()
    for session, age in ((silent, 90), (lively, -PATIENCE)):  # heard of for as long as the reaper takes
        queue.rows(
            "INSERT INTO engine_session"
            " (id, model, device, dtype, gpus, num_blocks, block_size, started_at, heartbeat_at)"
            " VALUES (:id, 'm', 'cpu', 'f32', 0, 1, 16, now() - interval '1 hour',"
            " now() - make_interval(secs => :age))",
            id=session,
            age=age,
        )
    with reaping(queue):
        eventually(
            lambda: queue.rows("SELECT 1 FROM engine_session WHERE ended_at = heartbeat_at AND id = :id", id=silent)
        )
    assert queue.rows("SELECT ended_at FROM engine_session WHERE id = :id", id=lively) == [(None,)]


def test_hours_that_were_not_closed_are_closed_later_and_drains_are_recorded(queue: Queue) -> None:
    with runner_bench(queue) as bench:
        bench.work("ok 1", "ok 2", "hopeless")
        bench.settle()
    for table in ("job", "attempt"):
        queue.rows(f"UPDATE {table} SET finished_at = finished_at - interval '30 hours'")
    queue.rows("UPDATE job SET enqueued_at = finished_at, not_before = finished_at")
    wait_out_the_hour()
    [hour] = queue.rows("SELECT date_trunc('hour', now()) - interval '1 hour' AS due")
    with reaping(queue):
        eventually(lambda: queue.rows("SELECT 1 FROM usage_progress WHERE closed_until = :due", due=hour.due))
    [usage] = queue.rows(
        "SELECT sum(accepted) AS accepted, sum(rejected) AS rejected, sum(dead) AS dead, sum(attempts) AS attempts,"
        " sum(output_tokens) AS tokens, sum(busy_seconds) AS seconds, sum(useful_seconds) AS useful"
        " FROM usage_by_hour WHERE kind = 'echo'"
    )
    assert tuple(usage) == (2, 1, 1, 3, 15, 0.75, 0.5)
    queue.rows(
        "INSERT INTO drain (started_at, ended_at) SELECT at, at FROM (SELECT now() - interval '40 hours') AS past (at)"
    )
    queue.rows("UPDATE engine_session SET ended_at = heartbeat_at, settled_at = now()")
    with reaping(queue):
        eventually(lambda: len(queue.rows("SELECT 1 FROM drain")) == 2)
