"""Leases in the worker's loop: extended, fenced, and ended by a cancellation or a deadline."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from tests.support.fake_engine import FakeClient
from tests.support.queue_bench import Queue, eventually, runner_bench
from thothy_ai.queue.hints import Hint


def test_cancelling_a_running_job_aborts_it(queue: Queue) -> None:
    with runner_bench(queue) as bench:
        [job_id] = bench.work("hang on")
        eventually(lambda: bench.client.submitted)
        assert queue.producer.cancel(job_id)
        eventually(lambda: queue.job(job_id).state == "cancelled")
        eventually(lambda: bench.done)
    assert queue.outcomes(job_id) == ["cancelled"]
    assert queue.rows("SELECT compute_seconds FROM attempt")[0][0] == 0.25  # what it cost until then


def test_cancelling_a_queued_or_dispatched_job_leaves_nothing_to_run(queue: Queue) -> None:
    queued, dispatched = queue.enqueue("ok 1", not_before=datetime.now(UTC) + timedelta(hours=1)), queue.enqueue("ok 2")
    hints = queue.dispatch()
    for job_id in queued + dispatched:
        assert queue.producer.cancel(job_id)
    with runner_bench(queue) as bench:
        for hint in hints:
            bench.runner.hand_over(hint)
        eventually(lambda: bench.done)
    assert queue.count("cancelled") == 2
    assert bench.client.submitted == []


def test_a_deadline_that_passes_while_it_runs_ends_it(queue: Queue) -> None:
    with runner_bench(queue) as bench:
        [job_id] = bench.work("hang on", deadline=datetime.now(UTC) + timedelta(hours=1))
        eventually(lambda: queue.job(job_id).state == "running")
        queue.rows("UPDATE job SET deadline = now() + interval '0.5 s'")
        eventually(lambda: queue.job(job_id).state == "expired")
    assert queue.outcomes(job_id) == ["expired"]


def test_a_job_given_to_another_attempt_is_dropped_without_a_trace(queue: Queue) -> None:
    with runner_bench(queue) as bench:
        [job_id] = bench.work("hang on")
        eventually(lambda: queue.job(job_id).state == "running")
        queue.rows("UPDATE job SET attempt = attempt + 1, worker = 'other'")
        eventually(lambda: bench.done)
        assert (queue.job(job_id).state, queue.job(job_id).worker) == ("running", "other")
        assert queue.outcomes(job_id) == []


def test_a_result_that_comes_too_late_is_fenced(queue: Queue) -> None:
    client = FakeClient()
    client.held = True
    with runner_bench(queue, client, heartbeat_seconds=600) as bench:
        [job_id] = bench.work("ok")
        eventually(lambda: queue.job(job_id).state == "running")
        queue.rows("UPDATE job SET attempt = attempt + 1, worker = 'other'")
        client.held = False
        eventually(lambda: bench.done)
    assert (queue.job(job_id).state, queue.job(job_id).worker) == ("running", "other")
    assert queue.verdicts(job_id) == []


def test_a_stale_message_is_done_at_once(queue: Queue) -> None:
    [job_id] = queue.enqueue("ok")
    queue.dispatch()
    with runner_bench(queue) as bench:
        bench.runner.hand_over(Hint(job_id, 7))
        eventually(lambda: bench.done == [Hint(job_id, 7)])
    assert queue.job(job_id).state == "dispatched"


def test_a_lease_is_extended_while_a_job_runs(queue: Queue) -> None:
    with runner_bench(queue) as bench:
        [job_id] = bench.work("hang on")
        eventually(lambda: queue.job(job_id).state == "running")
        first = queue.job(job_id).lease_until
        eventually(lambda: queue.job(job_id).lease_until > first)


def test_a_cancelled_job_has_no_reason_of_an_earlier_attempt(queue: Queue) -> None:
    with runner_bench(queue, retry_base_seconds=3600, retry_cap_seconds=3600) as bench:
        [job_id] = bench.work("broken engine")
        eventually(lambda: queue.job(job_id).reason == "engine_error")
    assert queue.producer.cancel(job_id)
    job = queue.job(job_id)
    assert (job.state, job.reason, job.detail) == ("cancelled", None, None)
