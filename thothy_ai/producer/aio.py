"""`AsyncProducer` and `AsyncJob`: run `operations` on an event loop. `sync` documents each method."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, cast, overload
from uuid import UUID

from thothy_ai.db.connect import make_async_engine, reaching
from thothy_ai.db.driver import within
from thothy_ai.db.states import Action, JobState
from thothy_ai.jobs import Artifact, Request
from thothy_ai.jobs.api.kind import A, A_co
from thothy_ai.producer import operations
from thothy_ai.producer.batches import BatchDraft, draft_batch, draft_one
from thothy_ai.producer.decisions import CurrentVersion, Decision
from thothy_ai.producer.drafts import Draft, EnqueueOptions, Entry, draft, draft_all
from thothy_ai.producer.gathering import Ended, Gathering, ids_of
from thothy_ai.producer.joined import async_joined
from thothy_ai.producer.listener import Waiter
from thothy_ai.producer.operations import (
    Jobs,
    Operation,
    Pause,
    ProducerBase,
    Query,
    Rows,
    Transaction,
    Wait,
    drive_async,
)
from thothy_ai.producer.snapshot import PollSchedule, Snapshot, parse_id
from thothy_ai.queue.changes import KEEP, Change, Keep
from thothy_ai.settings import Settings

if TYPE_CHECKING:
    from sqlalchemy import Engine
    from sqlalchemy.ext.asyncio import AsyncConnection

    from thothy_ai.producer.joined import AsyncGiven

T = TypeVar("T")


class AsyncProducer(ProducerBase):
    """Enqueues jobs and looks them up, on one event loop. Close it, or use it as an async context manager.

    Its methods do what those of `Producer` do, and raise the same errors.
    """

    def __init__(self, settings: Settings) -> None:
        self._engine = make_async_engine(settings, application="producer")
        super().__init__(settings)

    async def enqueue(
        self,
        request: Request[A],
        *,
        priority: int = 0,
        deadline: datetime | None = None,
        not_before: datetime | None = None,
        idempotency_key: str | None = None,
        max_attempts: int | None = None,
        max_compute_seconds: float | None = None,
        model: str | None = None,
        webhook: str | None = None,
        connection: AsyncGiven | None = None,
    ) -> AsyncJob[A]:
        """Enqueue one job, as `Producer.enqueue` does. `connection` is an AsyncConnection or an AsyncSession."""
        options = EnqueueOptions(
            priority, deadline, not_before, idempotency_key, max_attempts, max_compute_seconds, model
        )
        drafts = [draft(request, options, self.settings, datetime.now(UTC))]
        jobs: Jobs[AsyncJob[A]] = await self._enqueue(drafts, connection, draft_one(webhook))
        return jobs[0]

    async def enqueue_many(
        self,
        entries: Iterable[Entry[A]],
        *,
        webhook: str | None = None,
        notify: str = "batch",
        batch: UUID | bool = False,
        connection: AsyncGiven | None = None,
    ) -> Jobs[AsyncJob[A]]:
        """Enqueue all entries or none, as `Producer.enqueue_many` does."""
        return await self._enqueue(draft_all(entries, self.settings), connection, draft_batch(webhook, notify, batch))

    @overload
    async def wait_all(self, jobs: Iterable[AsyncJob[A]], timeout: float | None = None) -> list[Ended[A]]: ...  # noqa: ASYNC109

    @overload
    async def wait_all(
        self,
        jobs: Iterable[AsyncJob | UUID | str],
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> list[Ended[Any]]: ...

    async def wait_all(self, jobs: Iterable[AsyncJob | UUID | str], timeout: float | None = None) -> list[Ended[Any]]:  # noqa: ASYNC109 - as the sync version
        """Wait up to `timeout` seconds until all have ended, as `Producer.wait_all` does."""
        gathering = Gathering(ids_of(jobs), timeout)
        return await self._wait(
            gathering.ids, gathering.schedule, lambda waiter: operations.wait_all(gathering, waiter)
        )

    async def job(self, job_id: UUID | str) -> AsyncJob:
        """Return the job with this id. Raises `UnknownJobError`, or `InvalidJobError` if the id is malformed."""
        snapshot = await self.snapshot(parse_id(job_id))
        return AsyncJob(self, snapshot.id, snapshot.kind)

    async def snapshot(self, job_id: UUID) -> Snapshot:
        """Read the current state of a job. Raises `UnknownJobError`."""
        return await self._transact(operations.read_snapshot(job_id))

    async def cancel(self, job_id: UUID) -> bool:
        """Cancel a job, as `Producer.cancel` does. False if it had already ended. Raises `UnknownJobError`."""
        return await self._transact(operations.cancel(job_id))

    async def change(
        self,
        job_id: UUID,
        *,
        priority: int | Keep = KEEP,
        deadline: datetime | Keep | None = KEEP,
        not_before: datetime | Keep | None = KEEP,
    ) -> bool:
        """Change when a waiting job is to run, as `Producer.change` does. False if it no longer waits."""
        return await self._transact(operations.change(job_id, Change(priority, deadline, not_before)))

    async def artifact(self, snapshot: Snapshot) -> Artifact:
        """Read the accepted artifact of a succeeded job. Raises `UnreadableArtifactError`."""
        return await self._transact(operations.accepted_artifact(snapshot))

    async def close(self) -> None:
        """Close all database connections of this producer."""
        await asyncio.to_thread(self._listener.close)
        await self._engine.dispose()

    def _sync_engine(self) -> Engine:
        return self._engine.sync_engine

    async def _enqueue(
        self, drafts: list[Draft], given: AsyncGiven | None, batch: BatchDraft | None
    ) -> Jobs[AsyncJob[A]]:
        if not drafts:
            return Jobs()
        settled, batch_id = await self._transact(operations.enqueue(drafts, self.settings.tenant, batch), given)
        return Jobs((AsyncJob[A](self, one.id, one.kind, existed=one.existed) for one in settled), batch_id)

    async def _transact(self, operation: Transaction[T], given: AsyncGiven | None = None) -> T:
        """Run it in the caller's transaction, or in a new one."""
        with reaching(self.settings):
            async with self._engine.begin() if given is None else async_joined(given) as connection:
                return await drive_async(operation, lambda query: self._execute(connection, query))

    async def _wait(self, ids: Iterable[UUID], schedule: PollSchedule, start: Callable[[Waiter], Operation[T]]) -> T:
        """Run an operation that is woken when these jobs end; its statements keep the schedule's timeout."""
        notified = Wakeup()

        async def perform(step: Query | Wait | Pause) -> Rows | bool | None:
            match step:
                case Query():
                    with within(schedule.limit), reaching(self.settings):
                        async with self._engine.connect() as connection:
                            return await self._execute(connection, step)
                case Wait(seconds):
                    return await notified.wait(seconds)
                case Pause(seconds):
                    await asyncio.sleep(seconds)
                    return None

        with self._listener.waiting(ids, notified.set) as waiter:
            return await drive_async(start(waiter), perform)

    async def _execute(self, connection: AsyncConnection, query: Query) -> Rows:
        return operations.rows_of(await connection.execute(*self._statement(query)))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class AsyncJob(Generic[A_co]):
    """A handle to one job: its id and kind. Everything else is read from the database on each call.

    `existed`: the job was there before the call that returned this handle, which enqueued nothing.
    """

    def __init__(self, producer: AsyncProducer, job_id: UUID, kind: str, *, existed: bool = True) -> None:
        self._producer = producer
        self.id = job_id
        self.kind = kind
        self.existed = existed

    async def refresh(self) -> Snapshot:
        """Read the job's current state. Raises `UnknownJobError` if it has been deleted."""
        return await self._producer.snapshot(self.id)

    async def state(self) -> JobState:
        """Read only the job's state. Raises the same errors as `refresh`."""
        return (await self.refresh()).state

    async def cancel(self) -> bool:
        """Cancel the job: immediately while it waits, within a heartbeat while it runs. False if it had ended."""
        return await self._producer.cancel(self.id)

    async def change(
        self,
        *,
        priority: int | Keep = KEEP,
        deadline: datetime | Keep | None = KEEP,
        not_before: datetime | Keep | None = KEEP,
    ) -> bool:
        """Change when the job is to run, as `Producer.change` does. False if it no longer waits."""
        return await self._producer.change(self.id, priority=priority, deadline=deadline, not_before=not_before)

    async def result(self, timeout: float | None = None, *, approved: bool = False) -> A_co:  # noqa: ASYNC109 - the same signature as the sync version
        """Wait up to `timeout` seconds for the artifact, as `Job.result` does, with the same errors."""
        schedule = PollSchedule(timeout)
        artifact = await self._producer._wait(
            [self.id], schedule, lambda waiter: operations.result(self.id, schedule, waiter, approved=approved)
        )
        return cast("A_co", artifact)

    async def artifact(self) -> AsyncJobArtifact:
        """The artifact as a person sees it, as `Job.artifact` returns it, with the same errors."""
        return AsyncJobArtifact(self._producer, await self._producer._transact(operations.current_version(self.id)))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.id}, {self.kind!r})"


class AsyncJobArtifact:
    """The `current` version of a job's artifact, for a person to decide on."""

    def __init__(self, producer: AsyncProducer, current: CurrentVersion) -> None:
        self._producer = producer
        self.current = current

    async def decide(
        self,
        action: Action | str,
        *,
        by: str,
        note: str | None = None,
        body: Mapping[str, Any] | None = None,
        voice: str | None = None,
    ) -> AsyncJobArtifact:
        """Decide on this version, as `JobArtifact.decide` does, with the same errors."""
        decision = Decision(action, by, note, body, voice)
        current = self.current
        checked = await asyncio.to_thread(current.check, decision)
        operation = operations.decide(current.job_id, current.version, decision, checked)
        return AsyncJobArtifact(self._producer, await self._producer._transact(operation))


class Wakeup:
    """An event that another thread sets and one task waits for."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()

    def set(self) -> None:
        """Wake the task; from any thread."""
        with suppress(RuntimeError):  # the loop was closed meanwhile
            self._loop.call_soon_threadsafe(self._event.set)

    async def wait(self, seconds: float) -> bool:
        """Wait at most `seconds`; returns whether it was set, and unsets it."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._event.wait()
        was_set = self._event.is_set()
        self._event.clear()
        return was_set
