"""`InMemoryQueue` as tests of a producer use it; `test_in_memory.py` compares it with a queue over Postgres."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from tests.support.echo_kind import Echo, EchoArtifact
from tests.support.plan_kind import Parts, PartsArtifact
from thothy_ai.errors import (
    JobExpiredError,
    JobFailedError,
    NeedsEditError,
    ResultTimeoutError,
    UnknownJobError,
    WaitTimeoutError,
)
from thothy_ai.jobs import Hook, HookArtifact, Rejection, RejectionReason, SummaryTranslation, TrendSummary, registry
from thothy_ai.settings import Settings
from thothy_ai.testing import InMemoryQueue

SOURCE = "Crocks for fermenting at home sold out in March. " * 40  # so long that a real queue keeps it apart
HOOKS = HookArtifact.model_validate({"variants": [{"angle": "scarcity", "text": "No crocks left"}]})


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> InMemoryQueue:
    monkeypatch.setattr(registry, "_extra", {})  # other tests count the kinds
    return InMemoryQueue(Settings.load(kinds=("tests.support.echo_kind", "tests.support.plan_kind")))


def test_an_artifact_that_is_given_is_the_result(queue: InMemoryQueue) -> None:
    queue.answer(Hook, HOOKS)
    job = queue.producer.enqueue(Hook(source=SOURCE), priority=3)
    assert queue.requests(Hook) == [Hook(source=SOURCE)]
    assert job.state() == "queued"
    assert job.result(timeout=60) == HOOKS
    [snapshot] = queue.jobs()
    assert (snapshot.id, snapshot.state, snapshot.attempt, snapshot.priority) == (job.id, "succeeded", 1, 3)


def test_a_summary_is_translated_as_it_was_edited(queue: InMemoryQueue) -> None:
    point = {"point": "Sales of crocks rose in spring.", "quote": "Crocks for fermenting at home sold out in March."}
    written = {
        "title": "Crocks are back", "standfirst": "People ferment at home again.", "key_points": [point] * 3,
        "why_it_matters": "Shops can order more of them.", "tags": ["crocks", "jars", "home"], "confidence": "low",
    }  # fmt: skip
    queue.answer(TrendSummary, registry.find("trend_summary").artifact.model_validate(written))
    job = queue.producer.enqueue(TrendSummary(source=SOURCE, translate_to=("de",)))
    queue.run()
    assert [each.summary.title for each in queue.requests(SummaryTranslation)] == ["Crocks are back"], "nobody waits"
    edited = job.artifact().decide("edit", by="Ann", body=written | {"title": "Crocks sell out"})
    edited.decide("approve", by="Ann")
    translations = queue.requests(SummaryTranslation)
    assert [each.summary.title for each in translations] == ["Crocks are back", "Crocks sell out"]
    assert [each.reason for each in queue.jobs()[1:]] == ["superseded", None]


def test_a_rejection_uses_the_attempts_up(queue: InMemoryQueue) -> None:
    queue.answer(Hook, Rejection(RejectionReason.OFF_TOPIC, "about pots"))
    job = queue.producer.enqueue(Hook(source=SOURCE), max_attempts=2)
    with pytest.raises(JobFailedError, match="off_topic: about pots"):
        job.result(timeout=60)
    assert (job.refresh().attempt, job.refresh().failures) == (2, 2)


def test_the_best_draft_is_kept_for_a_person_whatever_the_last_attempt_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_extra", {})
    queue = InMemoryQueue(Settings.load(kinds=("tests.support.plan_kind",), policies={"parts": "review"}))
    written = iter(["retry this", "no JSON"])
    queue.answer(Parts, lambda _: {"echo": word} if (word := next(written)) != "no JSON" else word)
    job = queue.producer.enqueue(Parts(parts=("one",)), max_attempts=2)
    with pytest.raises(NeedsEditError) as caught:
        job.result(timeout=60)
    assert caught.value.draft == {"text": "retry this"}


@pytest.mark.parametrize(
    "answer", [{"echo": "ok"}, '{"echo": "ok"}', [{"echo": "ok"}], lambda request: {"echo": request.text}]
)
def test_what_the_model_writes_passes_the_kind_s_checks(queue: InMemoryQueue, answer: Any) -> None:
    queue.answer(Echo, answer)
    assert queue.producer.enqueue(Echo(text="ok")).result(timeout=60) == EchoArtifact(echo="ok")
    queue.answer(Echo, {"echo": "hopeless"})
    assert queue.producer.enqueue(Echo(text="x")).kind == "echo"
    assert queue.run() == 1
    assert [job.reason for job in queue.jobs()] == [None, "prompt_too_long"]


def test_an_answer_may_depend_on_the_attempt(queue: InMemoryQueue) -> None:
    written = iter(["no JSON", "retry", "ok"])
    queue.answer(Echo, lambda _: {"echo": word} if (word := next(written)) != "no JSON" else word)
    job = queue.producer.enqueue(Echo(text="x"))
    assert job.result(timeout=60).echo == "ok"
    assert (job.refresh().attempt, job.refresh().failures) == (3, 2)


def test_without_an_answer_the_model_writes_an_instance_of_the_schema(queue: InMemoryQueue) -> None:
    assert queue.producer.enqueue(Echo(text="x")).result(timeout=60).echo


def test_what_is_wrong_with_an_answer_is_the_test_s_error(queue: InMemoryQueue) -> None:
    queue.answer(Hook, EchoArtifact(echo="x"))
    queue.producer.enqueue(Hook(source=SOURCE))
    with pytest.raises(TypeError, match="HookArtifact"):
        queue.run()
    other = InMemoryQueue(queue.settings)
    other.answer(Echo, [])
    other.producer.enqueue(Echo(text="x"))
    with pytest.raises(ValueError, match="0 texts are given"):
        other.run()


def test_times_are_kept_and_may_be_moved(queue: InMemoryQueue) -> None:
    now, hour = datetime.now(UTC), timedelta(hours=1)
    later = queue.producer.enqueue(Echo(text="later"), not_before=now + hour)
    late = queue.producer.enqueue(Echo(text="late"), not_before=now + hour, deadline=now + 2 * hour)
    assert queue.run() == 0
    with pytest.raises(ResultTimeoutError):
        later.result(timeout=0.1)
    with pytest.raises(WaitTimeoutError):
        queue.producer.wait_all([later], timeout=0.1)
    assert queue.run(at=now + 3 * hour) == 2
    assert later.state() == "succeeded"
    with pytest.raises(JobExpiredError):
        late.result(timeout=0)


def test_the_most_urgent_goes_first(queue: InMemoryQueue) -> None:
    ran: list[str] = []
    queue.answer(Echo, lambda request: ran.append(request.text) or EchoArtifact(echo="x"))
    soon = datetime.now(UTC) + timedelta(hours=1)
    for text, options in (("plain", {}), ("due", {"deadline": soon}), ("urgent", {"priority": 1})):
        queue.producer.enqueue(Echo(text=text), **options)
    assert queue.run() == 3
    assert ran == ["urgent", "due", "plain"]


def test_one_that_is_cancelled_while_it_runs_is_not_retried(queue: InMemoryQueue) -> None:
    def answer(_: Echo) -> Rejection:
        assert job.cancel()
        return Rejection(RejectionReason.REPETITION, "again")

    queue.answer(Echo, answer)
    job = queue.producer.enqueue(Echo(text="x"))
    assert queue.run() == 1
    assert (job.state(), job.refresh().attempt, job.cancel()) == ("cancelled", 1, False)


def test_a_plan_of_several_calls_has_a_text_for_each(queue: InMemoryQueue) -> None:
    queue.answer(Parts, [{"echo": "one"}, {"echo": "two"}, {"echo": "verified"}])
    assert queue.producer.enqueue(Parts(parts=("a", "b"))).result(timeout=60) == PartsArtifact(text="one two")


def test_an_async_producer_of_the_same_queue(queue: InMemoryQueue) -> None:
    async def produce() -> None:
        queue.answer(Echo, {"echo": "ok"})
        async with queue.async_producer as producer:
            one, two = await producer.enqueue_many([Echo(text="1", more=1), Echo(text="2")])
            assert (await one.result(timeout=60)).echo == "ok"
            assert [each.artifact.echo for each in await producer.wait_all([one, two], timeout=60)] == ["ok", "ok"]
            with pytest.raises(UnknownJobError):
                await producer.snapshot(uuid4())
            later = await producer.enqueue(Echo(text="3"), not_before=datetime.now(UTC) + timedelta(hours=1))
            with pytest.raises(ResultTimeoutError):
                await later.result(timeout=0.1)
            assert await later.cancel()

    asyncio.run(produce())
    assert [request.text for request in queue.requests(Echo)] == ["1", "2", "ok 0", "3"]


def test_it_needs_no_server_s_library() -> None:
    code = "import sys, thothy_ai.testing; print(*{'torch', 'celery', 'redis', 'transformers'} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "\n"
