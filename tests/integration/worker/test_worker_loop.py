"""The outcomes of jobs in the worker's loop, against a real Postgres and a scripted engine."""

from __future__ import annotations

import json
from uuid import UUID

import pytest
from prometheus_client import REGISTRY

from tests.support.echo_kind import Echo
from tests.support.fake_engine import FAILED_USAGE
from tests.support.queue_bench import Queue, eventually, runner_bench
from thothy_ai.plans.judges import Judges
from thothy_ai.queue.hints import Hint


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
    assert attempt.engine_session_id == UUID(bench.client.session_id)
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
    monkeypatch.setattr("thothy_ai.plans.judges.WAITING_FACTOR", 1000)  # processor time alone is limited
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
