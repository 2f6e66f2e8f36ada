"""The async producer behaves like the sync one."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable

import pytest

from thothy_ai.db.states import JobState
from thothy_ai.errors import DatabaseUnreachableError, IdempotencyConflictError, JobCancelledError, UnknownJobError
from thothy_ai.jobs import Hook
from thothy_ai.producer import AsyncJob, AsyncProducer, EnqueueOptions, Job, Producer
from thothy_ai.settings import Settings

SOURCE = "Fermentation crocks sold out in March. Makers say that the waiting list is now nine weeks long."


def follow(settings: Settings, story: Callable[[AsyncProducer], Awaitable[None]]) -> None:
    async def tell() -> None:
        async with AsyncProducer.from_settings(settings) as producer:
            await story(producer)

    asyncio.run(tell())


def test_enqueue_find_cancel(settings: Settings) -> None:
    async def story(producer: AsyncProducer) -> None:
        job = await producer.enqueue(Hook(source=SOURCE), idempotency_key="k")
        again = await producer.enqueue(Hook(source=SOURCE), idempotency_key="k")
        found = await producer.job(job.id)
        assert job.id == again.id == found.id
        assert await job.state() is JobState.QUEUED
        assert await job.cancel()
        assert not await job.cancel()
        with pytest.raises(JobCancelledError):
            await job.result(timeout=1)

    follow(settings, story)


def test_change(settings: Settings) -> None:
    async def story(producer: AsyncProducer) -> None:
        job = await producer.enqueue(Hook(source=SOURCE))
        assert await job.change(priority=5)
        assert (await job.refresh()).priority == 5
        await job.cancel()
        assert not await job.change(priority=6)

    follow(settings, story)


def test_batches_are_all_or_nothing(settings: Settings) -> None:
    async def story(producer: AsyncProducer) -> None:
        keyed = EnqueueOptions(idempotency_key="k")
        jobs = await producer.enqueue_many([Hook(source=SOURCE), (Hook(source=SOURCE), keyed)])
        assert len(jobs) == 2
        again = await producer.enqueue(Hook(source=SOURCE), idempotency_key="k")
        assert [job.existed for job in (*jobs, again)] == [False, False, True]
        with pytest.raises(IdempotencyConflictError, match=f"^entry 1: .* that of job {jobs[1].id}$"):
            await producer.enqueue_many([Hook(source=SOURCE), (Hook(source="Another."), keyed)])
        with pytest.raises(UnknownJobError):
            await producer.cancel(type(jobs[0].id)(int=1))

    follow(settings, story)


def test_an_unreachable_database(clean_environment: None) -> None:
    async def story(producer: AsyncProducer) -> None:
        with pytest.raises(DatabaseUnreachableError, match=r"127\.0\.0\.1:1"):
            await producer.enqueue(Hook(source=SOURCE))

    follow(Settings.load(database_url="postgresql://u:p@127.0.0.1:1/d"), story)


@pytest.mark.parametrize(("ours", "theirs"), [(AsyncProducer, Producer), (AsyncJob, Job)])
def test_sync_and_async_have_the_same_signatures(ours: type, theirs: type) -> None:
    def face(cls: type) -> dict[str, list[str]]:
        return {
            name: list(inspect.signature(member).parameters)
            for name, member in inspect.getmembers(cls, inspect.isfunction)
            if not name.startswith("_")
        }

    assert face(ours) == face(theirs)
