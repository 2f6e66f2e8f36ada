"""Plans of several calls: side by side and in steps, cut off, over budget, stopped early, too like others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from tests.support.fake_engine import FAILED_USAGE, FakeClient
from tests.support.plan_kind import Parts
from tests.support.queue_bench import Queue, RunnerBench, eventually, runner_bench
from thothy_ai.admin.briefs import save_brief
from thothy_ai.admin.dead_letters import Selection, redrive
from thothy_ai.admin.verifiers import record_verifier
from thothy_ai.engine.api import EngineInfo
from thothy_ai.errors import NeedsEditError
from thothy_ai.jobs import Hook
from thothy_ai.jobs.api.brief import Brief
from thothy_ai.plans.context import Doubts, VerifierModel
from thothy_ai.producer.drafts import load_kinds

KINDS = ("tests.support.echo_kind", "tests.support.plan_kind")
TEXT = "ok Families in Freiburg buy cargo bikes in place of a second car, and the dealer cannot keep up with orders."


@contextmanager
def plan_bench(queue: Queue, client: FakeClient | None = None, **settings: Any) -> Iterator[RunnerBench]:
    load_kinds(queue.settings.model_copy(update={"kinds": KINDS}))
    with runner_bench(queue, client, kinds=KINDS, **settings) as bench:
        yield bench


def work(bench: RunnerBench, *parts: str, verification: str = "ok looked", locale: str = "en", **options: Any) -> UUID:
    job = bench.queue.producer.enqueue(Parts(parts=parts, verification=verification, locale=locale), **options)
    bench.hand_over()
    return job.id


def attempts(queue: Queue, job_id: UUID) -> list[tuple[str, float]]:
    rows = queue.rows("SELECT * FROM attempt WHERE job_id = :id ORDER BY attempt", id=job_id)
    return [(row.outcome, row.compute_seconds) for row in rows]


def test_calls_run_side_by_side_and_in_steps_and_all_are_billed(queue: Queue) -> None:
    with plan_bench(queue) as bench:
        job_id = work(bench, "ok one", "ok two", "ok three")
        bench.settle()
    sent = bench.client.submitted
    assert [request.id for request in sent] == [f"{job_id}.1.{number}" for number in range(4)]
    assert [request.profile for request in sent] == ["parts/write"] * 3 + ["parts/verify"]
    assert len({request.sampling.seed for request in sent}) == 4
    [attempt] = queue.rows("SELECT * FROM attempt")
    assert (attempt.compute_seconds, attempt.verification_seconds, attempt.output_tokens) == (1.0, 0.25, 20)
    [artifact] = queue.rows("SELECT * FROM artifact")
    assert artifact.body == {"text": "ok one ok two ok three"}
    assert artifact.text.splitlines() == [
        '{"echo": "ok one"}', '{"echo": "ok two"}', '{"echo": "ok three"}', '{"echo": "ok looked"}',
    ]  # fmt: skip
    assert artifact.verification == {
        "claims": [{"claim": "ok one ok two ok three", "label": "supported", "evidence": ""}],
        "compute_seconds": 0.25, "name": "fake", "weights": "", "weight": 0.5, "measured_at": None,
    }  # fmt: skip
    made = artifact.provenance
    assert (made["version"], made["model"], made["dtype"]) == ("7", "fake", "float32")
    write, verification = made["steps"]
    assert (write["step"], write["calls"], write["compute_seconds"]) == ("write", 3, 0.75)
    assert write["seeds"] + verification["seeds"] == [request.sampling.seed for request in sent]
    assert (write["sampling"]["temperature"], made["seed"]) == (0.5, sent[0].sampling.seed)


@pytest.mark.parametrize(
    ("measured", "weight"),
    [
        ({"found": 18, "false_alarms": 0}, 0.95),
        ({"found": 5, "false_alarms": 4}, 0.5),  # too few to tell
        ({"name": "another model", "found": 50, "false_alarms": 0}, 0.5),
        ({"weights": "others", "found": 50, "false_alarms": 0}, 0.5),
    ],
)
def test_findings_of_verification_weigh_what_was_measured_of_the_model(
    queue: Queue, measured: dict[str, Any], weight: float
) -> None:
    fake = VerifierModel("fake", "")
    if measured.keys() == {"found", "false_alarms"}:
        record_verifier(queue.engine, fake, Doubts(0, 30))  # which is replaced
    verifier = fake._replace(**{name: measured[name] for name in ("name", "weights") if name in measured})
    record_verifier(queue.engine, verifier, Doubts(measured["found"], measured["false_alarms"]))
    with plan_bench(queue) as bench:
        work(bench, "doubt it")
        bench.settle()
    [[findings, verification]] = queue.rows("SELECT findings, verification FROM artifact")
    assert [finding["weight"] for finding in findings] == [weight]
    assert (verification["name"], verification["weight"]) == ("fake", weight)
    assert bool(verification["measured_at"]) is (verifier == fake)


def test_a_call_that_fails_ends_the_others_and_all_are_billed(queue: Queue) -> None:
    with plan_bench(queue) as bench:
        job_id = work(bench, "hang on", "bad grammar")
        bench.settle()
    assert queue.job(job_id).reason == "invalid_grammar"
    assert attempts(queue, job_id) == [("failed", FAILED_USAGE.compute_seconds + 0.25)]


def test_a_plan_that_is_cut_off_is_billed_and_begun_anew(queue: Queue) -> None:
    with plan_bench(queue) as bench:
        job_id = work(bench, "ok one", "ok two", verification="hang on")
        eventually(lambda: len(bench.client.submitted) == 3)
        bench.runner.shut_down(0)
        eventually(lambda: queue.job(job_id).state == "queued")
    assert attempts(queue, job_id) == [("released", 0.75)]
    with plan_bench(queue) as bench:
        bench.hand_over()
        eventually(lambda: len(bench.client.submitted) == 3)
        assert [request.id for request in bench.client.submitted] == [f"{job_id}.2.{number}" for number in range(3)]
        assert queue.producer.cancel(job_id)
        bench.settle()
    assert attempts(queue, job_id) == [("released", 0.75), ("cancelled", 0.75)]


def test_an_engine_that_is_started_anew_between_two_steps_gets_the_plan_from_its_beginning(queue: Queue) -> None:
    client = FakeClient()
    client.held = True
    with plan_bench(queue, client) as bench:
        job_id = work(bench, "ok one")
        eventually(lambda: client.submitted)
        client.renew()
        eventually(lambda: str(bench.runner._monitor.session_id) == client.session_id)  # the worker has seen it
        client.held = False
        bench.settle()
    *before, (outcome, _) = attempts(queue, job_id)
    assert outcome == "succeeded"
    assert {outcome for outcome, _ in before} == {"released"}
    assert queue.job(job_id).failures == 0
    rows = queue.rows("SELECT engine_session_id, compute_seconds FROM attempt ORDER BY attempt")
    assert (rows[-1].engine_session_id, rows[-1].compute_seconds) == (UUID(client.session_id), 0.5)


def test_a_retry_knows_why_the_last_output_was_rejected(queue: Queue) -> None:
    with plan_bench(queue) as bench:
        job_id = work(bench, "retry it")
        bench.settle()
    assert queue.job(job_id).reason == "repetition"
    prompts = [request.messages[0].content for request in bench.client.submitted if request.profile == "parts/write"]
    assert prompts[:2] == ["retry it", "retry it after repetition of retry it"]
    assert len(prompts) == 3


def test_a_job_that_has_used_its_budget_is_dead_until_it_is_redriven(queue: Queue) -> None:
    with plan_bench(queue) as bench:
        job_id = work(bench, "retry it", max_compute_seconds=0.6, max_attempts=9)
        bench.settle()
        job = queue.job(job_id)
        assert (job.state, job.reason) == ("dead", "budget_spent")
        assert job.detail == "0.75 of 0.6 seconds are used; the last output was rejected: repetition"
        assert attempts(queue, job_id) == [("rejected", 0.5), ("failed", 0.25)]
        redrive(queue.engine, Selection(ids=(job_id,)), by="a test")
        bench.settle()
    assert attempts(queue, job_id)[2:] == [("rejected", 0.5), ("failed", 0.25)]


def test_a_budget_is_never_too_small_for_what_was_accepted(queue: Queue) -> None:
    with plan_bench(queue) as bench:
        job_id = work(bench, "ok one", max_compute_seconds=0.4)
        bench.settle()
    assert (queue.job(job_id).state, attempts(queue, job_id)) == ("succeeded", [("succeeded", 0.5)])


def test_a_prompt_that_is_too_long_is_for_the_plan_to_deal_with(queue: Queue) -> None:
    with plan_bench(queue) as bench:
        job_id = work(bench, "ok one", "long one")
        bench.settle()
    job = queue.job(job_id)
    assert (job.state, job.reason, job.attempt) == ("dead", "prompt_too_long", 1)
    assert attempts(queue, job_id) == [("rejected", 0.25)]


def test_a_wrong_language_is_stopped_early_and_what_that_saved_is_counted(queue: Queue) -> None:
    client = FakeClient()
    client.said = ['{"echo": "Familien in Freiburg kaufen Lastenräder an Stelle eines zweiten Autos, und der Händler']
    client.said += [" kommt mit den Bestellungen nicht mehr nach, seit die Stadt den Kauf fördert."]
    with plan_bench(queue, client) as bench:
        job_id = work(bench, "hang on", max_attempts=1)
        bench.settle()
    assert (queue.job(job_id).state, queue.job(job_id).reason) == ("dead", "wrong_language")
    [request] = bench.client.submitted
    assert request.report_after == 40
    [attempt] = queue.rows("SELECT * FROM attempt")
    assert (attempt.outcome, attempt.saved_tokens, attempt.compute_seconds) == ("rejected", 95, 0.25)


def test_an_output_that_is_certain_to_be_rejected_is_stopped_and_the_retry_knows_why(queue: Queue) -> None:
    client = FakeClient()
    client.said = [
        '{"echo": "Families in Freiburg buy 40 bikes. They want no second car. So they say in the town, and the'
    ]
    with plan_bench(queue, client) as bench:
        job_id = work(bench, "hang on 12", max_attempts=2)
        bench.settle()
    job = queue.job(job_id)
    assert (job.state, job.reason, job.detail) == ("dead", "banned_phrase", "contains '40 bikes'")
    assert [request.report_again for request in bench.client.submitted] == [True, True]
    rows = queue.rows("SELECT outcome, saved_tokens FROM attempt ORDER BY attempt")
    assert [tuple(row) for row in rows] == [("rejected", 95), ("rejected", 95)]


def test_the_installation_s_kv_budget_reaches_the_engine_and_the_record(queue: Queue) -> None:
    with plan_bench(queue, kv_budgets={"*": 2048}) as bench:
        work(bench, "ok one")
        bench.settle()
    assert [request.kv_budget for request in bench.client.submitted] == [2048, None]
    [artifact] = queue.rows("SELECT provenance FROM artifact")
    assert [(step["step"], step.get("kv_budget")) for step in artifact.provenance["steps"]] == [
        ("write", 2048),
        ("verify", None),
    ]


def test_an_engine_without_kv_budgets_runs_the_jobs_without_and_the_worker_says_so_once(
    queue: Queue, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    plain = FakeClient.info

    async def info(self: FakeClient) -> EngineInfo:
        return replace(await plain(self), keeps_all="it has windows")

    monkeypatch.setattr(FakeClient, "info", info)
    with plan_bench(queue, kv_budgets={"*": 2048}) as bench:
        jobs = [work(bench, "ok one", "ok two"), work(bench, "ok three")]
        bench.settle()
    assert [queue.job(job_id).state for job_id in jobs] == ["succeeded"] * 2
    assert {request.kv_budget for request in bench.client.submitted} == {None}
    said = [record.getMessage() for record in caplog.records if "keep all KV" in record.getMessage()]
    assert said == ["calls of the kind parts keep all KV on this engine: kv_budget is not possible: it has windows"]


def test_a_rejected_draft_is_kept_for_a_person_and_the_best_one_is_theirs(queue: Queue) -> None:
    with plan_bench(queue, policies={"parts": "review"}) as bench:
        job_id = work(bench, "retry one", max_attempts=2)
        bench.settle()
    assert (queue.job(job_id).state, queue.job(job_id).review) == ("succeeded", "needs_edit")
    assert [outcome for outcome, _ in attempts(queue, job_id)] == ["rejected", "rejected"]
    queue.rows(
        "UPDATE artifact SET findings = CAST(:found AS jsonb) WHERE attempt = 2",
        found='[{"weight": 0.9}, {"weight": 1}]',
    )
    with pytest.raises(NeedsEditError) as caught:
        queue.producer.job(job_id).result(timeout=0)
    assert caught.value.draft == {"text": "retry one"}
    assert caught.value.reason == "repetition"


def test_a_draft_outlives_the_end_of_its_job_s_budget(queue: Queue) -> None:
    with plan_bench(queue, policies={"parts": "review"}) as bench:
        job_id = work(bench, "retry it", max_compute_seconds=0.6, max_attempts=9)
        bench.settle()
    job = queue.job(job_id)
    assert (job.state, job.review, job.reason) == ("succeeded", "needs_edit", "budget_spent")
    assert attempts(queue, job_id) == [("rejected", 0.5), ("failed", 0.25)]
    with pytest.raises(NeedsEditError) as caught:
        queue.producer.job(job_id).result(timeout=0)
    assert caught.value.draft == {"text": "retry it"}


def test_the_right_language_goes_on(queue: Queue) -> None:
    client = FakeClient(delay=1)
    client.said = ['{"echo": "Families in Freiburg buy cargo bikes in place of a second car, and the one dealer there']
    client.said += [" cannot keep up with orders since the city began to pay for a part of each."]
    with plan_bench(queue, client) as bench:
        job_id = work(bench, "ok one")
        bench.settle()
    assert (queue.job(job_id).state, queue.job(job_id).failures) == ("succeeded", 0)


def test_an_artifact_nearly_the_same_as_another_recent_one_is_rejected(queue: Queue) -> None:
    with plan_bench(queue) as bench:
        first = work(bench, TEXT)
        bench.settle()
        again, other_locale = work(bench, TEXT), work(bench, TEXT, locale="en-GB")
        bench.settle()
    assert [queue.job(job).state for job in (first, again, other_locale)] == ["succeeded", "dead", "succeeded"]
    assert queue.job(again).reason == "near_duplicate"
    rows = queue.rows("SELECT verdict, signature IS NULL AS bare FROM artifact WHERE job_id = :id", id=again)
    assert {tuple(row) for row in rows} == {("rejected", True)}


@pytest.mark.parametrize("forgotten", [True, False])
def test_near_duplicates_are_looked_for_among_those_of_the_last_days(queue: Queue, forgotten: bool) -> None:
    with plan_bench(queue, duplicate_days=7 if forgotten else 0) as bench:
        work(bench, TEXT)
        bench.settle()
        if forgotten:
            queue.rows("UPDATE artifact SET created_at = created_at - interval '8 days'")
        again = work(bench, TEXT)
        bench.settle()
    assert queue.job(again).state == "succeeded"


def test_of_near_duplicates_that_end_in_the_same_instant_one_is_accepted(queue: Queue) -> None:
    with plan_bench(queue) as bench:
        jobs = [work(bench, TEXT, max_attempts=1) for _ in range(4)]
        bench.settle()
    assert sorted(queue.job(job).state for job in jobs) == ["dead", "dead", "dead", "succeeded"]
    assert {queue.job(job).reason for job in jobs if queue.job(job).state == "dead"} == {"near_duplicate"}


def test_near_duplicates_of_two_workers_are_written_one_after_the_other(queue: Queue) -> None:
    with plan_bench(queue) as one, plan_bench(queue) as other:
        jobs = []
        for _ in range(6):
            jobs += [work(one, TEXT, max_attempts=1), work(other, TEXT, max_attempts=1)]
        one.settle()
        other.settle()
        eventually(lambda: all(queue.job(job).state in {"dead", "succeeded"} for job in jobs))
    assert sum(queue.job(job).state == "succeeded" for job in jobs) == 1


def test_the_brief_is_part_of_the_provenance(queue: Queue) -> None:
    save_brief(queue.engine, queue.settings.tenant, "spring", {"angle": "who buys"}, "Ann")
    with plan_bench(queue) as bench:
        bench.queue.producer.enqueue(Hook(source=TEXT, brief=Brief(name="spring")), max_attempts=1)
        bench.hand_over()
        bench.settle()
    [artifact] = queue.rows("SELECT * FROM artifact")
    assert artifact.provenance["brief"] == {"name": "spring", "version": 1}
