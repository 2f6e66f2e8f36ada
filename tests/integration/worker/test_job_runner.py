"""The job runner against a real Postgres and a scripted engine."""

from __future__ import annotations

import asyncio
import json
import threading
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from prometheus_client import REGISTRY

from tests.support.echo_kind import Echo
from tests.support.fake_engine import FAILED_USAGE, FakeClient, FakeGeneration
from tests.support.queue_bench import PATIENCE, Queue, RunnerBench, eventually, runner_bench
from thothy_ai.engine.api import GenerationRequest
from thothy_ai.queue.hints import Hint
from thothy_ai.worker import heartbeat
from thothy_ai.worker.judges import Judges


def test_an_accepted_output_is_kept_once_with_what_it_cost(queue: Queue) -> None:
    commits = REGISTRY.get_sample_value("thothy_worker_commit_seconds_count") or 0
    with runner_bench(queue) as bench:
        [job_id] = bench.work("ok one")
        bench.settle()
        eventually(lambda: bench.done)
    job = queue.job(job_id)
    assert (job.state, job.attempt, job.failures, job.worker, job.lease_until) == ("succeeded", 1, 0, None, None)
    [attempt] = queue.rows("SELECT * FROM attempt")
    assert (attempt.outcome, attempt.prompt_tokens, attempt.cached_tokens, attempt.output_tokens) == (
        "succeeded",
        10,
        4,
        5,
    )
    assert attempt.compute_seconds == 0.25
    [artifact] = queue.rows("SELECT * FROM artifact")
    assert (artifact.verdict, artifact.reason, artifact.body, artifact.locale) == (
        "accepted",
        None,
        {"echo": "ok one"},
        "en",
    )
    [session] = queue.rows("SELECT * FROM engine_session")
    assert session.id == attempt.engine_session_id
    assert bench.done == [Hint(job_id, 1)]
    assert queue.events(job_id) == []
    assert REGISTRY.get_sample_value("thothy_worker_commit_seconds_count") == commits + 1


def test_what_a_worker_counts_of_waits_retries_and_judging(queue: Queue) -> None:
    def counted(name: str, **labels: str) -> float:
        return REGISTRY.get_sample_value(name, labels) or 0.0

    def counts() -> list[float]:
        return [
            counted("thothy_queue_wait_seconds_count", kind="echo"),
            counted("thothy_retries_total", kind="echo", reason="repetition"),
            counted("thothy_judge_seconds_count"),
            counted("thothy_judge_wait_seconds_count"),
        ]

    before = counts()
    with runner_bench(queue) as bench:
        bench.work("retry me")
        bench.settle()
    claims, retries, judged, judge_waits = (now - then for now, then in zip(counts(), before, strict=True))
    assert (claims, retries) == (3, 2), "three attempts, of which the last is no retry"
    assert judged == judge_waits >= 3
    assert counted("thothy_judge_tasks") == 0


def test_a_wait_begins_when_a_job_may_run(queue: Queue) -> None:
    def waited() -> float:
        return REGISTRY.get_sample_value("thothy_queue_wait_seconds_sum", {"kind": "echo"}) or 0.0

    before = waited()
    queue.enqueue("ok one")
    queue.rows("UPDATE job SET enqueued_at = now() - interval '2 hours', not_before = now() - interval '1 hour'")
    with runner_bench(queue) as bench:
        bench.settle()
    assert 3600 <= waited() - before < 7200


def test_a_rejected_output_is_drawn_again_with_another_seed_until_the_job_is_dead(queue: Queue) -> None:
    with runner_bench(queue) as bench:
        [job_id] = bench.work("retry me")
        bench.settle()
    job = queue.job(job_id)
    assert (job.state, job.reason, job.failures, job.attempt) == ("dead", "repetition", 3, 3)
    assert queue.outcomes(job_id) == ["rejected"] * 3
    assert queue.verdicts(job_id) == ["rejected"] * 3
    assert queue.events(job_id) == ["rejected", "rejected", "dead"]
    assert len({request.sampling.seed for request in bench.client.submitted}) == 3


@pytest.mark.parametrize(
    ("text", "reason", "attempts", "seconds"),
    [
        ("hopeless case", "prompt_too_long", 1, 0.25),
        ("long prompt", "prompt_too_long", 1, 0.0),
        ("bad grammar", "invalid_grammar", 1, FAILED_USAGE.compute_seconds),
        ("broken engine", "engine_error", 6, FAILED_USAGE.compute_seconds),
    ],
)
def test_what_kills_a_job_and_what_each_attempt_took(
    queue: Queue, text: str, reason: str, attempts: int, seconds: float
) -> None:
    with runner_bench(queue) as bench:
        dead, alive = bench.work(text, "ok bystander")
        bench.settle()
    job = queue.job(dead)
    assert (job.state, job.reason, job.attempt) == ("dead", reason, attempts)
    assert queue.job(alive).state == "succeeded"
    rows = queue.rows("SELECT * FROM attempt WHERE job_id = :id", id=dead)
    assert [row.compute_seconds for row in rows] == [seconds] * attempts


@pytest.mark.parametrize("text", ["raise it", "exit it", "stall it"])
def test_a_validator_that_raises_or_hangs_or_ends_its_process_costs_its_job_alone(
    queue: Queue, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("thothy_ai.worker.judges.WAITING_FACTOR", 1000)  # processor time alone is limited
    with runner_bench(queue, judges=Judges, judge_seconds=0.5) as bench:
        broken, fine = bench.work(text, "ok bystander")
        bench.settle()
    job = queue.job(broken)
    assert (job.state, job.reason, job.failures) == ("dead", "validator_error", 3)
    assert queue.job(fine).state == "succeeded"
    assert {(row.verdict, row.text) for row in queue.rows("SELECT * FROM artifact WHERE job_id = :id", id=broken)} == {
        ("rejected", json.dumps({"echo": text}))
    }
    assert [row.compute_seconds for row in queue.rows("SELECT * FROM attempt WHERE job_id = :id", id=broken)] == [
        0.25
    ] * 3


@pytest.mark.parametrize(
    ("column", "reason"), [("kind = 'no-such'", "unknown_kind"), ("tenant = tenant", "invalid_job")]
)
def test_jobs_that_the_code_no_longer_knows_are_dead(queue: Queue, column: str, reason: str) -> None:
    [job_id] = queue.enqueue("ok")
    queue.rows(f"UPDATE job SET {column}")
    if reason == "invalid_job":
        queue.rows("""UPDATE job_request SET request = '{"no": 1}'""")
    with runner_bench(queue) as bench:
        bench.settle()
    assert (queue.job(job_id).state, queue.job(job_id).reason) == ("dead", reason)


def test_follow_ups_are_queued_beside_the_artifact(queue: Queue) -> None:
    parent = queue.producer.enqueue(Echo(text="ok parent", more=2), priority=7).id
    with runner_bench(queue) as bench:
        bench.settle()
    children = queue.rows("SELECT * FROM job WHERE parent_id = :id", id=parent)
    assert [(child.state, child.priority, child.tenant) for child in children] == [("succeeded", 7, "default")] * 2
    assert len({child.source_key for child in children}) == 2


def test_a_job_that_kills_engines_runs_alone_and_dies_at_the_fourth(queue: Queue) -> None:
    with runner_bench(queue) as bench:
        [job_id] = bench.work("lost again")
        bench.settle()
    job = queue.job(job_id)
    assert (job.state, job.reason, job.engine_deaths, job.failures) == ("dead", "engine_killer", 4, 0)
    assert queue.outcomes(job_id) == ["lost"] * 4


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


def test_a_shutdown_finishes_what_it_can_and_releases_the_rest(queue: Queue) -> None:
    client = FakeClient()
    client.held = True
    with runner_bench(queue, client) as bench:
        quick, slow = bench.work("ok", "hang on")
        eventually(lambda: queue.count("running") == 2)
        bench.runner.shut_down(1000)
        client.held = False
        eventually(lambda: queue.job(quick).state == "succeeded")
        assert queue.job(slow).state == "running"
        bench.runner.shut_down(0)
        assert bench.runner.join(PATIENCE)
    job = queue.job(slow)
    assert (job.state, job.failures, job.attempt) == ("queued", 0, 1)
    assert queue.outcomes(slow) == ["released"]


def test_a_lease_is_extended_while_a_job_runs(queue: Queue) -> None:
    with runner_bench(queue) as bench:
        [job_id] = bench.work("hang on")
        eventually(lambda: queue.job(job_id).state == "running")
        first = queue.job(job_id).lease_until
        eventually(lambda: queue.job(job_id).lease_until > first)


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
        eventually(lambda: queue.ask("queue/unclaimed_dispatches", timeout_seconds=timeout))
        queue.ask("queue/reap_dispatches", ids=[job_id], dispatch_nos=[1], timeout_seconds=timeout)
        client.up = True
        bench.settle()
    assert (queue.job(job_id).state, queue.job(job_id).dispatch_no) == ("succeeded", 2)
    assert bench.done == [Hint(job_id, 1), Hint(job_id, 2)]


def test_a_cancelled_job_has_no_reason_of_an_earlier_attempt(queue: Queue) -> None:
    with runner_bench(queue, retry_base_seconds=3600, retry_cap_seconds=3600) as bench:
        [job_id] = bench.work("broken engine")
        eventually(lambda: queue.job(job_id).reason == "engine_error")
    assert queue.producer.cancel(job_id)
    job = queue.job(job_id)
    assert (job.state, job.reason, job.detail) == ("cancelled", None, None)


class SlowToAbort(FakeClient):
    """Its generations stop slowly. `aborting`: one has been asked to stop."""

    def __init__(self) -> None:
        super().__init__()
        self.aborting = threading.Event()

    async def submit(self, request: GenerationRequest) -> FakeGeneration:
        await super().submit(request)
        return SlowGeneration(request, self)


class SlowGeneration(FakeGeneration):
    async def abort(self) -> None:
        self._client.aborting.set()
        await asyncio.sleep(0.5)
        await super().abort()


def test_a_second_shutdown_does_not_cut_releasing_off(queue: Queue) -> None:
    client = SlowToAbort()
    with runner_bench(queue, client) as bench:
        [job_id] = bench.work("hang on")
        eventually(lambda: client.submitted)
        bench.runner.shut_down(0)
        assert client.aborting.wait(PATIENCE)
        bench.runner.shut_down(0)
        assert bench.runner.join(PATIENCE)
    assert (queue.job(job_id).state, queue.job(job_id).failures) == ("queued", 0)
    assert queue.outcomes(job_id) == ["released"]


def test_a_shutdown_in_the_first_instant_ends_the_job_runner(queue: Queue) -> None:
    bench = RunnerBench(queue, FakeClient(), queue.settings)
    bench.runner._loop.call_soon(bench.runner._begin_shutdown, 0.0)  # sooner than any other thread could
    bench.runner.start()
    assert bench.runner.join(PATIENCE)
    assert not bench.died.is_set()


def test_a_runner_that_is_just_ending_may_be_shut_down_again(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its thread lives a little longer than its loop."""
    with runner_bench(queue) as bench:
        bench.runner.shut_down(0)
        assert bench.runner.join(PATIENCE)
        monkeypatch.setattr(bench.runner._thread, "is_alive", lambda: True)
        bench.runner.shut_down(0)
        monkeypatch.undo()
