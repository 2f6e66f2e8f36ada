"""`AsyncProducer` and `AsyncJob`: the async versions of `sync`, using the same statements and pure functions."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, cast, overload
from uuid import UUID

from sqlalchemy import RowMapping, TextClause

from thothy_ai.db.connect import make_async_engine, reaching
from thothy_ai.db.statements import qualified
from thothy_ai.db.states import JobState
from thothy_ai.jobs import Artifact, Request
from thothy_ai.jobs.api.kind import A, A_co
from thothy_ai.producer.batches import BatchDraft, draft_batch, draft_one, inserted
from thothy_ai.producer.drafts import (
    Draft,
    EnqueueOptions,
    Entry,
    draft,
    draft_all,
    insertion,
    load_kinds,
    settle,
    taken_keys,
)
from thothy_ai.producer.gathering import Ended, Gathering, ids_of
from thothy_ai.producer.jobs import Jobs
from thothy_ai.producer.joined import async_joined
from thothy_ai.producer.listener import Listener
from thothy_ai.producer.snapshot import PollSchedule, Snapshot, parse_id, read_artifact
from thothy_ai.producer.wakeup import Wakeup
from thothy_ai.settings import Settings

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection

    from thothy_ai.producer.joined import AsyncGiven


class AsyncProducer:
    """Enqueues jobs and looks them up, on one event loop. Close it, or use it as an async context manager.

    It sees the jobs of its own tenant only: to it, those of others do not exist.

    Every method raises `DatabaseUnreachableError` if Postgres cannot be reached, and `MigrationsBehindError` if its
    schema is older than this code.
    """

    def __init__(self, settings: Settings) -> None:
        load_kinds(settings)
        self.settings = settings
        self._engine = make_async_engine(settings, application="producer")
        self._listener = Listener(settings)

    @classmethod
    def from_env(cls) -> Self:
        """Create from `THOTHY_*`, or from the embedded stack running in `$THOTHY_HOME`. Raises `ConfigError`."""
        return cls(Settings.load())

    @classmethod
    def from_settings(cls, settings: Settings) -> Self:
        """Create from settings. Raises `ConfigError` if they do not name a database."""
        return cls(settings)

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
        """Enqueue one job. If a job with the same idempotency key exists, return that job instead.

        The end of the job is told to `webhook`, a URL. A job that existed keeps the webhook that it has.

        With `connection`, the job belongs to the transaction that the connection or session is in: it runs after that
        has been committed, and is gone if that is rolled back.

        Raises `InvalidJobError`, and `IdempotencyConflictError` if the key belongs to a different request.
        """
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
        connection: AsyncGiven | None = None,
    ) -> Jobs[AsyncJob[A]]:
        """Enqueue requests, or pairs of request and `EnqueueOptions`, in one statement: all of them or none.

        With `webhook`, a URL, the jobs are a batch, with their follow-ups. The webhook is told when all of them have
        ended, or with `notify="job"` of the end of each. Jobs that existed are not part of it.

        Returns the jobs in the order of `entries`, with the id of the batch. Raises the same errors as `enqueue`,
        naming the entry; two entries with one idempotency key and different requests are a conflict, too.
        """
        return await self._enqueue(draft_all(entries, self.settings), connection, draft_batch(webhook, notify))

    @overload
    async def wait_all(self, jobs: Iterable[AsyncJob[A]], timeout: float | None = None) -> list[Ended[A]]: ...  # noqa: ASYNC109

    @overload
    async def wait_all(
        self,
        jobs: Iterable[AsyncJob | UUID | str],
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> list[Ended[Any]]: ...

    async def wait_all(self, jobs: Iterable[AsyncJob | UUID | str], timeout: float | None = None) -> list[Ended[Any]]:  # noqa: ASYNC109 - as the sync version
        """Wait up to `timeout` seconds (None: indefinitely) until all have ended; how each did, in the order given.

        A timeout of 0 or less looks once. `jobs` are handles or ids. One query serves many jobs. Raises
        `WaitTimeoutError`, which names the open ones, `UnknownJobError`, and `InvalidJobError` for what is no job and
        no id.
        """
        gathering = Gathering(ids_of(jobs), timeout)
        event, told = Wakeup(), None
        with self._listener.waiting(gathering.ids, event.set) as waiting:
            while not await self._ended(gathering, told):
                woken = await event.wait(gathering.next_delay(listening=waiting.listen()))
                told = waiting.take() if woken else None
                await asyncio.sleep(gathering.linger(told))
                more = waiting.take()
                told = None if told is None or more is None else told | more
        bodies: dict[UUID, object] = {}
        for ids, kinds in gathering.succeeded():
            rows = await self._read("producer/artifacts", ids=ids, kinds=kinds)
            bodies.update({row["job_id"]: row["body"] for row in rows})
        return gathering.outcomes(bodies)

    async def job(self, job_id: UUID | str) -> AsyncJob:
        """Return the job with this id. Raises `UnknownJobError`, or `InvalidJobError` if the id is malformed."""
        snapshot = await self.snapshot(parse_id(job_id))
        return AsyncJob(self, snapshot.id, snapshot.kind)

    async def snapshot(self, job_id: UUID) -> Snapshot:
        """Read the current state of a job. Raises `UnknownJobError`."""
        with reaching(self.settings):
            async with self._engine.connect() as connection:
                found = await connection.execute(self._sql("producer/snapshot"), self._own(id=job_id))
        return Snapshot.of(found.mappings().one_or_none(), job_id)

    async def cancel(self, job_id: UUID) -> bool:
        """Cancel a job: immediately while it waits, within a heartbeat while it runs.

        Returns False if the job had already ended. Raises `UnknownJobError`.
        """
        with reaching(self.settings):
            async with self._engine.begin() as connection:
                found = await connection.execute(self._sql("queue/cancel"), self._own(ids=[job_id]))
        if found.one_or_none() is not None:
            return True
        await self.snapshot(job_id)
        return False

    async def artifact(self, snapshot: Snapshot) -> Artifact:
        """Read the accepted artifact of a succeeded job. Raises `UnreadableArtifactError`."""
        key = self._own(id=snapshot.id, kind=snapshot.kind)
        with reaching(self.settings):
            async with self._engine.connect() as connection:
                found = await connection.execute(self._sql("producer/artifact"), key)
        return read_artifact(snapshot, found.scalar_one_or_none())

    async def close(self) -> None:
        """Close all database connections."""
        await asyncio.to_thread(self._listener.close)
        await self._engine.dispose()

    async def _ended(self, gathering: Gathering, told: set[UUID] | None) -> bool:
        asked = gathering.ask(told)
        if asked:
            gathering.note(asked, await self._read("producer/snapshots", ids=asked))
        return gathering.done

    async def _read(self, name: str, **parameters: object) -> Sequence[RowMapping]:
        with reaching(self.settings):
            async with self._engine.connect() as connection:
                return (await connection.execute(self._sql(name), self._own(**parameters))).mappings().all()

    async def _enqueue(
        self, drafts: list[Draft], given: AsyncGiven | None, batch: BatchDraft | None
    ) -> Jobs[AsyncJob[A]]:
        if not drafts:
            return Jobs()
        with reaching(self.settings):
            async with self._engine.begin() if given is None else async_joined(given) as connection:
                settled = await self._insert(connection, drafts, batch)
                made = inserted(settled)
                if batch and made:
                    await connection.execute(self._sql("producer/batch"), batch.row(self.settings.tenant, made))
        jobs = (AsyncJob[A](self, one.id, one.kind, existed=one.existed) for one in settled)
        return Jobs(jobs, batch.id if batch and made else None)

    async def _insert(self, connection: AsyncConnection, drafts: list[Draft], batch: BatchDraft | None) -> list[Draft]:
        name, given = insertion(drafts, self.settings.tenant, batch.id if batch else None)
        taken = (await connection.execute(self._sql(name), given)).one().taken
        if not taken:
            return drafts
        conflicts = self._own(keys=taken_keys(drafts, taken))
        return settle(drafts, await connection.execute(self._sql("producer/jobs_by_key"), conflicts))

    def _sql(self, name: str) -> TextClause:
        return qualified(name, self.settings.database_schema)

    def _own(self, **parameters: object) -> dict[str, object]:
        return {**parameters, "tenant": self.settings.tenant}

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
        """Read only the job's state. Raises as `refresh`."""
        return (await self.refresh()).state

    async def cancel(self) -> bool:
        """Cancel the job: immediately while it waits, within a heartbeat while it runs. False if it had ended."""
        return await self._producer.cancel(self.id)

    async def result(self, timeout: float | None = None) -> A_co:  # noqa: ASYNC109 - the same signature as the sync version
        """Wait up to `timeout` seconds (None: indefinitely) for the artifact, an instance of the kind's artifact class.

        A timeout of 0 or less looks once. Raises `ResultTimeoutError`, or `JobFailedError`, `JobCancelledError` or
        `JobExpiredError` if the job ended without an artifact.
        """
        schedule = PollSchedule(self.id, timeout)
        ended = Wakeup()
        with self._producer._listener.waiting([self.id], ended.set) as waiting:
            while not (snapshot := await self.refresh()).succeeded():
                await ended.wait(schedule.next_delay(snapshot.state, listening=waiting.listen()))
        return cast("A_co", await self._producer.artifact(snapshot))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.id}, {self.kind!r})"
