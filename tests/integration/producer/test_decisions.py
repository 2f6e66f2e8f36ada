"""Decisions on artifacts: what each does, who is first, and what cannot be decided."""

from __future__ import annotations

import asyncio
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import patch
from uuid import UUID

import pytest

from tests.support.decided import FINDING, written
from tests.support.echo_kind import Echo, EchoArtifact
from tests.support.fake_engine import FakeGeneration
from tests.support.patience import PATIENCE
from tests.support.queue_bench import Queue, eventually, runner_bench
from tests.support.webhook_bench import deliveries
from thothy_ai.admin.artifacts import list_artifacts
from thothy_ai.db.states import JobState, ReviewState
from thothy_ai.errors import (
    ArtifactRejectedError,
    DecisionConflictError,
    InvalidDecisionError,
    NeedsEditError,
    NothingToDecideError,
    ResultTimeoutError,
    UnknownJobError,
)
from thothy_ai.producer import AsyncProducer, JobArtifact
from thothy_ai.producer.decisions import MAX_NOTE_CHARS

EDITED = {"echo": "Other words."}
DECISIONS = "SELECT version, action, decided_by, note FROM decision WHERE job_id = :id ORDER BY decided_at"


def artifact_of(queue: Queue, job_id: UUID) -> JobArtifact:
    return queue.producer.job(job_id).artifact()


def test_what_is_approved_is_the_result(queue: Queue) -> None:
    job_id = written(queue)
    job = queue.producer.job(job_id)
    with pytest.raises(ResultTimeoutError, match="needs_review"):
        job.result(timeout=0, approved=True)
    assert job.result(timeout=0) == EchoArtifact(echo="The first words.")
    artifact = job.artifact()
    assert (artifact.current.version, artifact.current.review) == (1, ReviewState.NEEDS_REVIEW)
    assert artifact.current.findings[0]["reason"] == "number_not_in_source"
    edited = artifact.decide("edit", by="Ann", body=EDITED)
    assert job.result(timeout=0) == EchoArtifact(echo="The first words."), "nobody has approved the edit"
    approved = edited.decide("approve", by="Bo", note="good now", voice="acme")
    assert (approved.current.review, approved.current.version) == (ReviewState.APPROVED, 2)
    assert approved.current.written == {"echo": "The first words."}
    assert (artifact.current.text is None, approved.current.text) == (False, None), "it is the model's, not Ann's"
    assert job.result(timeout=0, approved=True) == job.result(timeout=0) == EchoArtifact(**EDITED)
    assert queue.producer.wait_all([job])[0].result() == EchoArtifact(**EDITED)
    assert queue.rows(DECISIONS, id=job_id) == [(1, "edit", "Ann", None), (2, "approve", "Bo", "good now")]
    assert queue.rows("SELECT voice FROM decision WHERE action = 'approve'") == [("acme",)]


def test_whoever_waits_is_told_of_the_approval_and_of_the_rejection(queue: Queue) -> None:
    approved, rejected = (queue.producer.job(written(queue)) for _ in range(2))
    with ThreadPoolExecutor(2) as threads:
        results = [threads.submit(job.result, PATIENCE, approved=True) for job in (approved, rejected)]
        approved.artifact().decide("approve", by="Ann")
        rejected.artifact().decide("reject", by="Ann", note="too long")
        assert results[0].result() == EchoArtifact(echo="The first words.")
        with pytest.raises(ArtifactRejectedError, match=r"rejected \(Ann: too long\)"):
            results[1].result()
    with pytest.raises(ArtifactRejectedError, match="Ann: too long"):
        queue.producer.wait_all([rejected])[0].result()
    reopened = rejected.artifact().decide("reopen", by="Bo")
    assert reopened.current.review is ReviewState.HELD
    assert reopened.decide("approve", by="Bo").current.review is ReviewState.APPROVED


@pytest.mark.parametrize("first", ["approve", "reject", "edit", "send_back", "hold"])
def test_the_second_of_two_on_one_version_is_told_who_was_first(queue: Queue, first: str) -> None:
    artifact = artifact_of(queue, written(queue))
    artifact.decide(first, by="Ann", note="so", body=EDITED if first == "edit" else None)
    second = "hold" if first == "hold" else "approve"
    with pytest.raises(DecisionConflictError, match=rf"Ann chose to {first.replace('_', ' ')} at 20\d\d-") as caught:
        artifact.decide(second, by="Bo")
    assert (caught.value.by, caught.value.version) == ("Ann", 1)
    assert caught.value.at == queue.rows("SELECT decided_at FROM decision")[0][0]


def test_of_many_at_once_one_decides(queue: Queue) -> None:
    artifact, start = artifact_of(queue, written(queue)), threading.Barrier(8)

    def decide(number: int) -> str:
        start.wait()
        try:
            artifact.decide(
                ("approve", "reject", "edit", "send_back")[number % 4],
                by=f"editor {number}",
                note="so",
                body=EDITED if number % 4 == 2 else None,
            )
        except DecisionConflictError as error:
            return error.by
        return "me"

    with ThreadPoolExecutor(8) as threads:
        told = list(threads.map(decide, range(8)))
    [(first,)] = queue.rows("SELECT decided_by FROM decision")
    assert sorted(told) == sorted(["me", *[first] * 7])


@pytest.mark.parametrize("echo", ["", "x" * 2**20])
def test_an_edit_that_breaks_the_schema_is_a_draft(queue: Queue, echo: str) -> None:
    artifact = artifact_of(queue, written(queue, ReviewState.NEEDS_EDIT)).decide("edit", by="Ann", body={"echo": echo})
    assert artifact.current.review is ReviewState.NEEDS_EDIT
    assert str(artifact.current.problem).startswith("echo: ")
    assert (artifact.current.body, artifact.current.artifact) == ({"echo": echo}, None)
    with pytest.raises(InvalidDecisionError, match="action: version 2 is a draft, edit it first: echo"):
        artifact.decide("approve", by="Ann")
    assert artifact.decide("edit", by="Ann", body=EDITED).decide("approve", by="Ann").current.version == 3
    assert queue.producer.job(artifact.current.job_id).result(timeout=0) == EchoArtifact(**EDITED)


@pytest.mark.parametrize("body", [{"other": "x"}, {}])
def test_a_draft_that_is_not_whole_is_edited_first(queue: Queue, body: dict[str, Any]) -> None:
    job_id = written(queue, ReviewState.NEEDS_EDIT, body)
    queue.rows("UPDATE artifact SET body = CAST(:body AS jsonb)", body=json.dumps(body))
    artifact = artifact_of(queue, job_id)
    with pytest.raises(InvalidDecisionError, match="version 1 is a draft, edit it first: echo: is missing"):
        artifact.decide("approve", by="Ann")
    with pytest.raises(NeedsEditError) as caught:
        queue.producer.job(job_id).result(timeout=0)
    assert caught.value.draft == body
    edited = artifact.decide("edit", by="Ann", body=EDITED)
    with pytest.raises(NeedsEditError, match=r"is needs_review \(version 2 waits for a decision\)"):
        queue.producer.job(job_id).result(timeout=0)
    edited.decide("approve", by="Ann")
    assert queue.producer.job(job_id).result(timeout=0) == EchoArtifact(**EDITED)


def test_an_edit_is_checked_by_the_same_rules_and_a_person_has_the_last_word(queue: Queue) -> None:
    artifact = artifact_of(queue, written(queue)).decide("edit", by="Ann", body={"echo": "retry it is."})
    assert [finding["reason"] for finding in artifact.current.findings] == ["repetition"]
    broken = artifact.decide("edit", by="Ann", body={"echo": "raise it is."})
    assert [finding["reason"] for finding in broken.current.findings] == ["validator_error"]
    assert broken.decide("approve", by="Ann").current.review is ReviewState.APPROVED


FOLLOW_UPS = """
    SELECT request ->> 'text', state, review FROM job JOIN job_request ON job_id = id WHERE parent_id = :id ORDER BY id
"""


def asking(queue: Queue, review: ReviewState | None, **options: Any) -> UUID:
    """A job of the kind `echo` whose artifact asks for two follow-ups, and waits for a person."""
    job_id = written(queue, review, **options)
    queue.rows("""UPDATE job_request SET request = '{"text": "ok", "more": 2}' WHERE job_id = :id""", id=job_id)
    return job_id


@pytest.mark.parametrize("review", [ReviewState.NEEDS_REVIEW, ReviewState.NEEDS_EDIT])
def test_what_is_approved_has_its_follow_ups_once(queue: Queue, review: ReviewState) -> None:
    job_id = asking(queue, review, deadline=datetime.now(UTC) + timedelta(hours=1), priority=3)
    artifact = artifact_of(queue, job_id).decide("hold", by="Ann").decide("edit", by="Ann", body=EDITED)
    assert not queue.rows(FOLLOW_UPS, id=job_id), "nobody has approved it"
    approved = artifact.decide("approve", by="Ann")
    with pytest.raises(DecisionConflictError):
        artifact.decide("approve", by="Bo")
    approved.decide("reopen", by="Ann").decide("approve", by="Ann")
    made = [("Other words. 0", "queued", None), ("Other words. 1", "queued", None)]
    assert queue.rows(FOLLOW_UPS, id=job_id) == made
    inherited = queue.rows("SELECT priority, deadline IS NOT NULL FROM job WHERE parent_id = :id", id=job_id)
    assert inherited == [(3, True)] * 2


def test_an_approval_without_its_follow_ups_is_none(queue: Queue) -> None:
    job_id = asking(queue, ReviewState.NEEDS_REVIEW)
    artifact = artifact_of(queue, job_id)

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with patch("thothy_ai.producer.operations.settled", killed), pytest.raises(KeyboardInterrupt):
        artifact.decide("approve", by="Ann")
    assert queue.job(job_id).review == "needs_review"
    assert not queue.rows("SELECT job_id FROM decision")
    artifact.decide("approve", by="Ann")
    assert len(queue.rows(FOLLOW_UPS, id=job_id)) == 2


def test_follow_ups_of_a_version_that_no_longer_stands_are_superseded(queue: Queue) -> None:
    """Whether they wait, run or have run, and theirs; those that the next version asks for, too, stay."""
    job_id = asking(queue, ReviewState.NEEDS_REVIEW)
    first = artifact_of(queue, job_id).decide("approve", by="Ann")
    waits, ran = (row.id for row in queue.rows("SELECT id FROM job WHERE parent_id = :id ORDER BY id", id=job_id))
    queue.rows("UPDATE job SET state = 'succeeded', finished_at = now(), attempt = 1 WHERE id = :id", id=ran)
    theirs = written(queue)
    queue.rows("UPDATE job SET parent_id = :ran WHERE id = :id", ran=ran, id=theirs)
    held = first.decide("reopen", by="Ann")
    same = held.decide("edit", by="Ann", body={"echo": "The first words."}).decide("approve", by="Ann")
    assert [row.id for row in queue.rows("SELECT id FROM job WHERE parent_id = :id", id=job_id)] == [waits, ran]
    other = same.decide("reopen", by="Ann").decide("edit", by="Ann", body=EDITED).decide("approve", by="Ann")
    superseded = [("The first words. 0", "cancelled", None), ("The first words. 1", "succeeded", "superseded")]
    made = [("Other words. 0", "queued", None), ("Other words. 1", "queued", None)]
    assert queue.rows(FOLLOW_UPS, id=job_id) == superseded + made
    assert {queue.job(each).reason for each in (waits, ran, theirs)} == {"superseded"}
    with pytest.raises(ArtifactRejectedError, match="the text that it follows is another now"):
        queue.producer.job(theirs).result(timeout=0)
    shown = [(row["verdict"], row["reason"]) for row in list_artifacts(queue.engine, job_id=theirs)]
    assert shown == [("rejected", "superseded")]
    with pytest.raises(InvalidDecisionError, match="follows a text that is another now: reopen it first"):
        artifact_of(queue, theirs).decide("approve", by="Ann")
    assert artifact_of(queue, theirs).decide("reopen", by="Ann").decide("approve", by="Ann").current.reason is None
    other.decide("reopen", by="Ann").decide("reject", by="Ann", note="no news")
    assert {state for _, state, _ in queue.rows(FOLLOW_UPS, id=job_id)} == {"cancelled", "succeeded"}


def test_a_version_tries_again_what_ended_without_an_artifact(queue: Queue) -> None:
    job_id = asking(queue, ReviewState.NEEDS_REVIEW)
    approved = artifact_of(queue, job_id).decide("approve", by="Ann")
    queue.rows(
        "UPDATE job SET state = 'dead', reason = 'budget_spent', finished_at = now() WHERE parent_id IS NOT NULL"
    )
    again = approved.decide("reopen", by="Ann").decide("approve", by="Ann").decide("reopen", by="Ann")
    assert len(queue.rows(FOLLOW_UPS, id=job_id)) == 2, "of the same version"
    again.decide("edit", by="Ann", body={"echo": "The first words."}).decide("approve", by="Ann")
    assert [state for _, state, _ in queue.rows(FOLLOW_UPS, id=job_id)] == ["dead", "dead", "queued", "queued"]


def test_what_ended_without_an_artifact_goes_on_saying_why(queue: Queue) -> None:
    """It is neither superseded, nor keeps those from being made anew that were."""
    job_id = asking(queue, ReviewState.NEEDS_REVIEW)
    approved = artifact_of(queue, job_id).decide("approve", by="Ann")
    waits, dead = (row.id for row in queue.rows("SELECT id FROM job WHERE parent_id = :id ORDER BY id", id=job_id))
    queue.rows("UPDATE job SET state = 'dead', reason = 'off_topic', finished_at = now() WHERE id = :id", id=dead)
    rejected = approved.decide("reopen", by="Ann").decide("reject", by="Ann", note="no news")
    assert [queue.job(each).reason for each in (waits, dead)] == ["superseded", "off_topic"]
    rejected.decide("reopen", by="Ann").decide("approve", by="Ann")
    assert [state for _, state, _ in queue.rows(FOLLOW_UPS, id=job_id)] == ["cancelled", "dead", "queued", "queued"]


@pytest.mark.parametrize(("again", "states"), [("ok then", ["succeeded"]), ("ok now", ["succeeded", "succeeded"])])
def test_what_is_sent_back_has_no_second_set_of_follow_ups(queue: Queue, again: str, states: list[str]) -> None:
    job_id = queue.producer.enqueue(Echo(text="ok then", more=1)).id
    with runner_bench(queue) as bench:
        bench.settle()
    artifact_of(queue, job_id).decide("send_back", by="Ann", note="Name the river.")
    queue.rows("UPDATE job_request SET request = request || CAST(:new AS jsonb) WHERE job_id = :id",
               new=json.dumps({"text": again}), id=job_id)  # fmt: skip
    with runner_bench(queue) as bench:
        bench.settle()
    made = queue.rows(FOLLOW_UPS, id=job_id)
    assert [state for _, state, _ in made] == states
    assert [text for text, _, review in made if review is None] == [f"{queue.producer.job(job_id).result().echo} 0"]


@pytest.mark.parametrize(
    ("stopped", "state", "review"), [(True, "cancelled", None), (False, "succeeded", "superseded")]
)
def test_what_is_superseded_while_it_runs_asks_for_nothing(
    queue: Queue, stopped: bool, state: str, review: str | None
) -> None:
    job_id = queue.producer.enqueue(Echo(text="ok then", more=1)).id
    with runner_bench(queue) as bench:
        bench.client.held = True
        bench.hand_over()
        eventually(lambda: queue.job(job_id).state == "running")
        if stopped:
            queue.ask("queue/supersede", ids=[job_id])
        else:  # the worker has not heard of it when the output comes
            queue.rows("UPDATE job SET reason = 'superseded'")
        bench.client.held = stopped
        bench.settle()
    job = queue.job(job_id)
    assert (job.state, job.reason, job.review) == (state, "superseded", review)
    assert not queue.rows(FOLLOW_UPS, id=job_id)


def test_a_draft_of_the_gates_is_published_by_a_person_as_it_is(queue: Queue) -> None:
    job_id = written(queue, ReviewState.NEEDS_EDIT)
    artifact_of(queue, job_id).decide("approve", by="Ann")
    assert queue.producer.job(job_id).result(timeout=0) == EchoArtifact(echo="The first words.")


@pytest.mark.parametrize("review", [ReviewState.NEEDS_REVIEW, ReviewState.NEEDS_EDIT])
def test_what_is_sent_back_runs_once_more_with_the_note(queue: Queue, review: ReviewState) -> None:
    job_id = written(queue, review, max_attempts=3)
    queue.rows("UPDATE job SET deadline = now() - interval '1 hour', failures = 1")
    sent = artifact_of(queue, job_id).decide("send_back", by="Ann", note="Name the river.")
    job = queue.job(job_id)
    assert (job.state, job.review, job.version, job.failures, job.deadline) == ("queued", None, 2, 2, None)
    assert sent.current.state is JobState.QUEUED
    with pytest.raises(NothingToDecideError):
        sent.decide("approve", by="Bo")
    with runner_bench(queue) as bench:
        bench.settle()
        prompts = [request.messages[-1].content for request in bench.client.submitted]
    assert len(prompts) == 1
    assert prompts[0].startswith("ok and all of it\n")
    assert prompts[0].endswith('{"echo": "The first words."}\nTheir note: Name the river.')
    assert queue.producer.job(job_id).result(timeout=0) == EchoArtifact(echo="ok and all of it")
    assert queue.verdicts(job_id) == ["rejected", "accepted"]
    assert artifact_of(queue, job_id).decide("approve", by="Ann").current.version == 2


def test_an_edit_that_was_sent_back_stands_until_an_attempt_leaves_a_draft(queue: Queue) -> None:
    job_id = written(queue, ReviewState.NEEDS_REVIEW, max_attempts=3)
    edited = artifact_of(queue, job_id).decide("edit", by="Ann", body={"echo": "The river."})
    edited.decide("send_back", by="Ann", note="Name the river.")
    queue.rows("UPDATE job SET state = 'succeeded', finished_at = now(), attempt = 2, review = 'needs_edit'")
    lost = artifact_of(queue, job_id)
    assert (lost.current.version, lost.current.body, lost.current.edited_by) == (3, {"echo": "The river."}, "Ann")
    with pytest.raises(NeedsEditError) as caught:
        queue.producer.job(job_id).result(timeout=0)
    assert caught.value.draft == {"echo": "The river."}
    lost.decide("send_back", by="Bo", note="Name it twice.")
    with runner_bench(queue) as bench:
        bench.settle()
        [prompt] = [request.messages[-1].content for request in bench.client.submitted]
    assert prompt.endswith('{"echo": "The river."}\nTheir note: Name it twice.')
    assert artifact_of(queue, job_id).current.body == {"echo": "ok and all of it"}


def test_an_edit_that_stands_after_a_send_back_can_be_approved(queue: Queue) -> None:
    job_id = written(queue, ReviewState.NEEDS_REVIEW, max_attempts=3)
    edited = artifact_of(queue, job_id).decide("edit", by="Ann", body={"echo": "The river."})
    edited.decide("send_back", by="Ann", note="Name the river.")
    queue.rows("UPDATE job SET state = 'succeeded', finished_at = now(), attempt = 2, review = 'needs_edit'")
    artifact_of(queue, job_id).decide("approve", by="Bo")
    assert queue.producer.job(job_id).result(timeout=0) == EchoArtifact(echo="The river.")
    assert [row["body"] for row in list_artifacts(queue.engine, approved=True)] == [{"echo": "The river."}]


@pytest.mark.parametrize(
    ("said", "editor", "stands"),
    [("no JSON", "Ann", "The river."), ("no JSON", None, "The first words."), ('{"echo": "retry"}', None, "retry")],
)
def test_what_was_sent_back_stands_unless_the_attempt_leaves_a_draft(
    queue: Queue, said: str, editor: str | None, stands: str
) -> None:
    def answered(text: str) -> None:
        with (
            patch.object(FakeGeneration, "_finished", lambda self, _, reason: finished(self, text, reason)),
            runner_bench(queue, policies={"*": "review"}) as bench,
        ):
            bench.settle()
            prompts.append(bench.client.submitted[-1].messages[-1].content)

    finished, prompts = FakeGeneration._finished, list[str]()
    job_id = written(queue, ReviewState.NEEDS_REVIEW, {"echo": "The first words."}, max_attempts=3)
    if editor or stands == "retry":
        artifact_of(queue, job_id).decide("edit", by="Ann", body={"echo": "The river."})
    artifact_of(queue, job_id).decide("send_back", by="Ann", note="Name the river.")
    answered(said)
    for note in ("Name it twice.", None):
        assert queue.job(job_id).review == "needs_edit"
        left = artifact_of(queue, job_id)
        assert (left.current.body, left.current.edited_by) == ({"echo": stands}, editor)
        with pytest.raises(NeedsEditError) as caught:
            queue.producer.job(job_id).result(timeout=0)
        assert caught.value.draft == left.current.body
        if note is not None:
            left.decide("send_back", by="Bo", note=note)
            answered("no JSON")
            assert f"{json.dumps(left.current.body)}\nTheir note: {note}" in prompts[-1]
    left.decide("approve", by="Bo")
    assert [row["body"] for row in list_artifacts(queue.engine, approved=True)] == [left.current.body]


def test_the_version_after_a_send_back_is_what_the_next_attempt_wrote(queue: Queue) -> None:
    job_id = written(queue, findings=())
    artifact_of(queue, job_id).decide("send_back", by="Ann", note="Name the river.")
    queue.rows(
        "INSERT INTO artifact (job_id, kind, locale, attempt, tenant, verdict, reason, body, text, findings,"
        " draft) SELECT job_id, kind, locale, 2, tenant, 'rejected', 'repetition', CAST(:body AS jsonb), text,"
        " CAST(:findings AS jsonb), true FROM artifact",
        body=json.dumps({"echo": "The river Lys."}),
        findings=json.dumps([FINDING]),
    )
    queue.rows("UPDATE job SET state = 'succeeded', finished_at = now(), attempt = 2, review = 'needs_edit'")
    with pytest.raises(NeedsEditError) as caught:
        queue.producer.job(job_id).result(timeout=0)
    assert caught.value.draft == artifact_of(queue, job_id).current.body == {"echo": "The river Lys."}
    artifact_of(queue, job_id).decide("approve", by="Bo")
    job = queue.producer.job(job_id)
    assert job.result(timeout=0) == queue.producer.wait_all([job])[0].result() == EchoArtifact(echo="The river Lys.")
    assert [row["body"] for row in list_artifacts(queue.engine, approved=True)] == [{"echo": "The river Lys."}]


BAD: list[tuple[dict[str, Any], str]] = [
    ({"action": "publish"}, "action: 'publish' is not one of approve, edit"),
    ({"by": ""}, "by: is empty"),
    ({"by": "Ann\x1b[2J"}, "by: must be one line"),
    ({"by": "A" * 201}, "by: has 201 characters; the limit is 200"),
    ({"action": "reject"}, "note: is missing: say why"),
    ({"action": "send_back", "note": "  "}, "note: is missing: say what"),
    ({"action": "send_back", "note": "n" * 2**20}, f"note: has 1,048,576 characters; the limit is {MAX_NOTE_CHARS:,}"),
    ({"note": "a\x00b"}, "note: contains a NUL"),
    ({"action": "edit"}, "body: is missing"),
    ({"body": {"echo": "x"}}, "body: belongs to an edit only"),
    ({"action": "edit", "body": ["x"]}, "body: must be an object"),
    ({"action": "edit", "body": {"echo": float("nan")}}, "body: Out of range float"),
    ({"action": "edit", "body": {"echo": "\ud800"}}, "body: contains a lone surrogate"),
    ({"action": "edit", "body": {"echo": "x" * 5_000_000}}, "body: has 5,000,0.. characters as JSON; the limit is"),
    ({"action": "hold", "voice": "acme"}, "voice: belongs to an approval only"),
    ({"action": "reopen"}, "action: version 1 is not decided"),
]


@pytest.mark.parametrize(("given", "says"), BAD, ids=[says for _, says in BAD])
def test_a_decision_that_nobody_can_make_names_its_field(queue: Queue, given: dict[str, Any], says: str) -> None:
    artifact = artifact_of(queue, written(queue))
    with pytest.raises(InvalidDecisionError, match=says):
        artifact.decide(**{"action": "approve", "by": "Ann", **given})
    assert not queue.rows("SELECT * FROM decision")


def test_a_purged_or_unfinished_job_has_nothing_to_decide(queue: Queue) -> None:
    [waiting], purged = queue.enqueue("ok"), artifact_of(queue, written(queue))
    with pytest.raises(NothingToDecideError, match="is queued: only the artifact of a job that succeeded"):
        artifact_of(queue, waiting).decide("approve", by="Ann")
    purged.decide("edit", by="Ann", body=EDITED)
    queue.rows("DELETE FROM job WHERE state = 'succeeded'")
    with pytest.raises(UnknownJobError):
        purged.decide("approve", by="Ann")
    assert not queue.rows("SELECT job_id FROM decision UNION ALL SELECT job_id FROM artifact_version")


def test_a_webhook_of_jobs_is_told_of_decisions(queue: Queue) -> None:
    job_id = written(queue, webhook="http://127.0.0.1:1/done")
    written(queue)
    for each in queue.producer.job(job_id), queue.producer.job(written(queue)):
        each.artifact().decide("reject", by="Ann", note="too long")
    told = [row.payload for row in deliveries(queue) if row.payload["type"] == "job.decided"]
    [message] = told
    wanted = {"job_id": str(job_id), "version": 1, "action": "reject", "decided_by": "Ann", "note": "too long"}
    assert wanted.items() <= message["data"].items()


def test_async_producers_decide_too(queue: Queue) -> None:
    job_id = written(queue)

    async def decide() -> None:
        async with AsyncProducer(queue.settings) as producer:
            job = await producer.job(job_id)
            artifact = await job.artifact()
            await (await artifact.decide("edit", by="Ann", body=EDITED)).decide("approve", by="Ann")
            assert await job.result(5, approved=True) == EchoArtifact(**EDITED)
            with pytest.raises(DecisionConflictError):
                await artifact.decide("hold", by="Bo")

    asyncio.run(decide())
