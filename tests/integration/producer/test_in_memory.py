"""`thothy_ai.testing.InMemoryQueue` tells a producer what a queue over Postgres with a worker does."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import patch
from uuid import uuid4

import pytest

from tests.support.echo_kind import Echo
from tests.support.fake_engine import FakeGeneration
from tests.support.patience import PATIENCE
from tests.support.queue_bench import Queue, runner_bench
from thothy_ai.errors import (
    ArtifactRejectedError,
    DecisionConflictError,
    IdempotencyConflictError,
    InvalidDecisionError,
    NeedsEditError,
    NothingToDecideError,
    ResultTimeoutError,
    UnknownJobError,
)
from thothy_ai.jobs import Policy
from thothy_ai.producer import AsyncProducer, EnqueueOptions, Producer
from thothy_ai.testing import InMemoryQueue

TEXTS = ("ok", "retry", "hopeless", "raise")


def told(producer: Producer, work: Callable[[], object]) -> Iterator[object]:
    """All that a producer is told."""
    keyed = EnqueueOptions(idempotency_key="a", max_attempts=2)
    jobs = producer.enqueue_many([*(Echo(text=text) for text in TEXTS), Echo(text="ok more", more=2)])
    yield jobs.batch_id
    jobs += producer.enqueue_many([(Echo(text="ok once"), keyed), (Echo(text="ok once"), keyed)])
    yield jobs[-1].id == jobs[-2].id
    again = producer.enqueue(Echo(text="ok once"), idempotency_key="a")
    yield (again.id == jobs[-1].id, again.existed, jobs[0].existed)
    for entries in ([(Echo(text="other"), keyed)], [Echo(text="none of them"), (Echo(text="other"), keyed)]):
        with pytest.raises(IdempotencyConflictError) as conflict:
            producer.enqueue_many(entries)
        yield conflict.value.entry
    late = producer.enqueue(Echo(text="late"), not_before=datetime.now(UTC) + timedelta(hours=1))
    yield (late.cancel(), late.cancel(), late.state())
    for look in (producer.snapshot, producer.cancel):
        with pytest.raises(UnknownJobError):
            look(uuid4())
    yield producer.enqueue_many([], webhook="https://example.org").batch_id
    called = producer.enqueue_many([(Echo(text="ok once"), keyed)], webhook="https://example.org")
    yield (called.batch_id, called[0].existed)
    work()
    for ended in producer.wait_all([*jobs, late], timeout=PATIENCE):
        seen = ended.snapshot
        yield (seen.kind, seen.tenant, seen.state, seen.attempt, seen.failures, seen.reason, seen.detail, seen.priority)
        yield (ended.artifact, type(ended.error), getattr(ended.error, "draft", None), seen.review)
    yield jobs[0].result(timeout=0)


@pytest.mark.parametrize("policy", ["publish", "review"])
def test_a_producer_is_told_the_same(queue: Queue, policy: str) -> None:
    memory = InMemoryQueue(queue.settings.model_copy(update={"policies": {"*": Policy(policy)}}))
    memory.answer(Echo, lambda request: {"echo": request.text})
    with runner_bench(queue, retry_base_seconds=0, policies={"*": policy}) as bench:
        real = list(told(queue.producer, bench.settle))
    assert list(told(memory.producer, memory.run)) == real
    texts = [row.text for row in queue.rows("SELECT request ->> 'text' AS text FROM job_request")]
    assert sorted(request.text for request in memory.requests(Echo)) == sorted(texts)


def test_people_decide_alike_on_both(queue: Queue) -> None:
    def decided(producer: Producer, settle: Callable[[], object]) -> list[Any]:
        job = producer.enqueue(Echo(text="ok and all of it"))
        settle()
        first = job.artifact()
        edited = first.decide("edit", by="Ann", body={"echo": "retry it is."})
        seen: list[Any] = [edited.current.review, edited.current.findings, job.result(timeout=0)]
        for artifact in (first, edited):
            try:
                artifact.decide("send_back", by="Bo", note="Name it.")
            except DecisionConflictError as error:
                seen.append((error.version, error.by, error.action))
        settle()
        seen.append(job.artifact().current.version)
        job.artifact().decide("approve", by="Ann")
        seen.append(job.result(timeout=0, approved=True))
        job.artifact().decide("reopen", by="Ann").decide("reject", by="Ann", note="no")
        with pytest.raises(ArtifactRejectedError):
            job.result(timeout=0)
        return [*seen, [(each.version, each.action, each.note) for each in job.artifact().current.decisions]]

    with runner_bench(queue) as bench:
        recorded = decided(queue.producer, bench.settle)
    in_memory = InMemoryQueue(queue.settings)
    in_memory.answer(Echo, {"echo": "ok and all of it"})
    assert decided(in_memory.producer, in_memory.run) == recorded


def test_an_edit_that_was_sent_back_stands_alike_on_both(queue: Queue) -> None:
    def decided(producer: Producer, settle: Callable[[str], object]) -> list[Any]:
        job, seen = producer.enqueue(Echo(text="ok and all of it"), max_attempts=1), list[Any]()
        settle('{"echo": "ok"}')
        job.artifact().decide("edit", by="Ann", body={"echo": "retry it is."})
        for said in ("no JSON", "no JSON", '{"echo": "retry"}'):
            job.artifact().decide("send_back", by="Bo", note="Name it.")
            settle(said)
            now = job.artifact().current
            seen.append((now.version, now.review, now.body, now.written, now.edited_by, len(now.findings)))
            with pytest.raises(NeedsEditError) as caught:
                job.result(timeout=0)
            seen.append(caught.value.draft)
        return seen

    def settle(said: str) -> None:
        with patch.object(FakeGeneration, "_finished", lambda self, _, reason: finished(self, said, reason)):
            bench.settle()

    def settle_in_memory(said: str) -> None:
        in_memory.answer(Echo, said)
        in_memory.run()

    finished = FakeGeneration._finished
    with runner_bench(queue, policies={"*": Policy.REVIEW}) as bench:
        recorded = decided(queue.producer, settle)
    in_memory = InMemoryQueue(queue.settings.model_copy(update={"policies": {"*": Policy.REVIEW}}))
    assert decided(in_memory.producer, settle_in_memory) == recorded


def test_asynchronous_producers_decide_alike_on_both(queue: Queue) -> None:
    async def decided(producer: AsyncProducer, settle: Callable[[], object]) -> list[Any]:
        doubted, drafted = await producer.enqueue_many(
            [(Echo(text=text), EnqueueOptions(max_attempts=1)) for text in ("doubt it", "retry it")]
        )
        await asyncio.to_thread(settle)
        seen: list[Any] = []

        async def refused(work: Awaitable[object], error: type[Exception]) -> None:
            with pytest.raises(error) as caught:
                await work
            seen.append(re.sub(r"[0-9a-f-]{36}|20\d\d-\S+ \S+", "…", str(caught.value)))

        await refused(doubted.result(0, approved=True), ResultTimeoutError)
        await refused(drafted.result(0), NeedsEditError)
        first = await doubted.artifact()
        broken = await first.decide("edit", by="Ann", body={"echo": "x" * 2**20})
        await refused(broken.decide("approve", by="Ann"), InvalidDecisionError)
        await refused(first.decide("hold", by="Bo"), DecisionConflictError)
        await refused(first.decide("reject", by="Bo", note="n" * 2**20), InvalidDecisionError)
        mended = await broken.decide("edit", by="Ann", body={"echo": "mended"})
        waiting = asyncio.create_task(doubted.result(PATIENCE, approved=True))
        await mended.decide("approve", by="Ann")
        seen += [await waiting, (await doubted.artifact()).current.changes]
        sent = await (await drafted.artifact()).decide("send_back", by="Bo", note="Name it.")
        await refused(sent.decide("approve", by="Bo"), NothingToDecideError)
        snapshot = await producer.snapshot(drafted.id)
        seen.append((snapshot.state, snapshot.reason, snapshot.detail, snapshot.failures, snapshot.review))
        await asyncio.to_thread(settle)
        await (await drafted.artifact()).decide("reject", by="Bo", note="still no name")
        await refused(drafted.result(0, approved=True), ArtifactRejectedError)
        return seen

    async def recorded() -> list[Any]:
        async with AsyncProducer(queue.settings) as producer:
            return await decided(producer, bench.settle)

    with runner_bench(queue, policies={"*": Policy.REVIEW}) as bench:
        real = asyncio.run(recorded())
    memory = InMemoryQueue(queue.settings.model_copy(update={"policies": {"*": Policy.REVIEW}}))
    memory.answer(Echo, lambda request: {"echo": request.text})
    assert asyncio.run(decided(memory.async_producer, memory.run)) == real


@pytest.mark.parametrize("text", ["doubt it", "retry it"])
def test_follow_ups_come_with_the_approval_on_both(queue: Queue, text: str) -> None:
    def followed(producer: Producer, settle: Callable[[], object], ended: Callable[[], list[Any]]) -> list[Any]:
        job = producer.enqueue(Echo(text=text, more=1), max_attempts=1)
        settle()
        seen = [ended()]
        approved = job.artifact().decide("edit", by="Ann", body={"echo": "ok then"}).decide("approve", by="Ann")
        settle()
        seen.append(ended())
        other = approved.decide("reopen", by="Ann").decide("edit", by="Ann", body={"echo": "ok now"})
        other.decide("approve", by="Ann")
        settle()
        seen.append(ended())
        other.decide("reopen", by="Ann").decide("reject", by="Ann", note="no news")
        return [*seen, ended()]

    def recorded() -> list[Any]:
        return [tuple(row) for row in queue.rows("SELECT state, review, reason FROM job ORDER BY id")]

    with runner_bench(queue, policies={"*": "review"}) as bench:
        real = followed(queue.producer, bench.settle, recorded)
    memory = InMemoryQueue(queue.settings.model_copy(update={"policies": {"*": Policy.REVIEW}}))
    memory.answer(Echo, lambda request: {"echo": request.text})
    states = followed(
        memory.producer, memory.run, lambda: [(job.state, job.review, job.reason) for job in memory.jobs()]
    )
    assert states == real
    assert [len(each) for each in real] == [1, 2, 3, 3]
