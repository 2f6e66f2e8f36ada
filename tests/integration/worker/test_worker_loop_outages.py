"""The worker's loop while its engine is away, or Postgres takes no outcome."""

from __future__ import annotations

from uuid import UUID

import pytest

from tests.support.fake_engine import FakeClient
from tests.support.queue_bench import Queue, eventually, runner_bench
from thothy_ai.queue.hints import Hint
from thothy_ai.worker import heartbeat


def test_nothing_is_claimed_while_the_engine_is_away(queue: Queue) -> None:
    client = FakeClient()
    client.up = False
    with runner_bench(queue, client) as bench:
        [first] = bench.work("ok later")
        held_since(queue, first)  # the claim waits for the engine
        [second] = bench.work("ok later still")
        held_since(queue, second)  # and this one for the claim
        assert [(queue.job(job_id).state, queue.job(job_id).attempt) for job_id in (first, second)] == [
            ("dispatched", 0)
        ] * 2
        client.up = True
        eventually(lambda: queue.count("succeeded") == 2)
    assert queue.rows("SELECT DISTINCT attempt FROM job") == [(1,)]


def held_since(queue: Queue, job_id: UUID) -> None:
    """Its dispatch time moves on: it is not lost."""
    dispatched_at = queue.job(job_id).dispatched_at
    eventually(lambda: queue.job(job_id).dispatched_at > dispatched_at)


def test_an_engine_that_accepts_nothing_new_costs_no_attempt_and_the_next_one_gets_the_job(queue: Queue) -> None:
    client = FakeClient()
    client.accepting = False
    with runner_bench(queue, client) as bench:
        [job_id] = bench.work("ok")
        eventually(lambda: queue.job(job_id).state == "queued")
        assert queue.outcomes(job_id) == ["released"]
        client.renew()
        bench.settle()
    assert (queue.job(job_id).state, queue.job(job_id).failures) == ("succeeded", 0)


def test_an_outcome_that_postgres_refuses_takes_no_other_with_it(queue: Queue) -> None:
    queue.rows("ALTER TABLE artifact ADD CONSTRAINT picky CHECK (text NOT LIKE '%refuse%')")
    with runner_bench(queue, FakeClient(delay=0.2)) as bench:
        refused, fine = bench.work("ok refuse me", "ok")
        bench.settle()
    assert (queue.job(refused).state, queue.job(refused).reason) == ("dead", "unstorable")
    assert queue.job(fine).state == "succeeded"


def test_an_outcome_waits_out_a_database_that_takes_no_writes(queue: Queue) -> None:
    """A lock that cannot be acquired, a deadlock, a read-only server: none of them is the job's fault."""
    queue.rows(
        "CREATE FUNCTION busy() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN RAISE EXCEPTION USING ERRCODE = 'lock_not_available'; END $$"
    )
    queue.rows(
        "CREATE TRIGGER busy BEFORE UPDATE ON job FOR EACH ROW WHEN (NEW.state = 'succeeded') EXECUTE FUNCTION busy()"
    )
    with runner_bench(queue) as bench:
        [job_id] = bench.work("ok")
        eventually(lambda: bench.client.submitted)
        first = queue.job(job_id).lease_until
        eventually(lambda: (queue.job(job_id).lease_until - first).total_seconds() > 1)
        assert queue.job(job_id).state == "running"
        queue.rows("DROP FUNCTION busy CASCADE")
        bench.settle()
    assert (queue.job(job_id).state, queue.job(job_id).attempt) == ("succeeded", 1)


def test_without_an_engine_messages_are_not_held_indefinitely(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "HOLD_SECONDS", 0.5)
    client = FakeClient()
    client.up = False
    with runner_bench(queue, client) as bench:
        [job_id] = bench.work("ok")
        timeout = 1.0

        def reaped() -> bool:  # unless the worker has noted once more that it holds it
            if queue.ask("queue/unclaimed_dispatches", timeout_seconds=timeout):
                queue.ask("queue/reap_dispatches", ids=[job_id], dispatch_nos=[1], timeout_seconds=timeout)
            return bool(queue.job(job_id).state == "queued")

        eventually(reaped)
        client.up = True
        bench.settle()
    assert (queue.job(job_id).state, queue.job(job_id).dispatch_no) == ("succeeded", 2)
    assert bench.done == [Hint(job_id, 1), Hint(job_id, 2)]
