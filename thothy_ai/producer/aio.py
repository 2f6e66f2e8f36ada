"""`AsyncProducer` and `AsyncJob`: the async twins of `sync`, over the same statements and the same pure parts."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Self
from uuid import UUID

from thothy_ai.db.connect import make_async_engine, reaching
from thothy_ai.db.statements import statement
from thothy_ai.db.states import JobState
from thothy_ai.jobs import Artifact, Request
from thothy_ai.producer.snapshot import Patience, Snapshot, parse_id, read_artifact
from thothy_ai.queue.drafts import (
    Draft,
    EnqueueOptions,
    Entry,
    draft_all,
    load_kinds,
    parameters,
    settle,
    taken_keys,
)
from thothy_ai.settings import Settings

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection


class AsyncProducer:
    """Enqueues jobs and finds them again, on one event loop; close it, or use it in an `async with`.

    Every method raises `DatabaseUnreachableError` when Postgres cannot be reached, and `MigrationsBehindError` when its
    schema is older than this code.
    """

    def __init__(self, settings: Settings) -> None:
        load_kinds(settings)
        self.settings = settings
        self._engine = make_async_engine(settings, application="producer")

    @classmethod
    def from_env(cls) -> Self:
        """From `THOTHY_*`, or from the embedded stack that runs in `$THOTHY_HOME`. Raises `ConfigError`."""
        return cls(Settings.load())

    @classmethod
    def from_settings(cls, settings: Settings) -> Self:
        """From settings. Raises `ConfigError` when they name no database."""
        return cls(settings)

    async def enqueue(
        self,
        request: Request,
        *,
        priority: int = 0,
        deadline: datetime | None = None,
        not_before: datetime | None = None,
        idempotency_key: str | None = None,
        max_attempts: int | None = None,
    ) -> AsyncJob:
        """Enqueue one job; with an idempotency key, return the job that already holds it.

        Raises `InvalidJobError`, and `IdempotencyConflictError` when the key's job has another request.
        """
        options = EnqueueOptions(priority, deadline, not_before, idempotency_key, max_attempts)
        return (await self.enqueue_many([(request, options)]))[0]

    async def enqueue_many(self, entries: Iterable[Entry]) -> list[AsyncJob]:
        """Enqueue requests, or pairs of request and `EnqueueOptions`, in one statement: all or none.

        Raises as `enqueue`.
        """
        drafts = draft_all(entries, self.settings)
        if not drafts:
            return []
        with reaching(self.settings):
            async with self._engine.begin() as connection:
                settled = await self._insert(connection, drafts)
        return [AsyncJob(self, draft.id, draft.kind) for draft in settled]

    async def job(self, job_id: UUID | str) -> AsyncJob:
        """The job with this id. Raises `UnknownJobError`; `InvalidJobError` when it is not an id."""
        snapshot = await self.snapshot(parse_id(job_id))
        return AsyncJob(self, snapshot.id, snapshot.kind)

    async def snapshot(self, job_id: UUID) -> Snapshot:
        """Where this job is now. Raises `UnknownJobError`."""
        with reaching(self.settings):
            async with self._engine.connect() as connection:
                found = await connection.execute(statement("producer/snapshot"), {"id": job_id})
        return Snapshot.of(found.mappings().one_or_none(), job_id)

    async def cancel(self, job_id: UUID) -> bool:
        """Cancel a job: at once when it waits, soon when it runs. False when it had ended. Raises `UnknownJobError`."""
        with reaching(self.settings):
            async with self._engine.begin() as connection:
                found = await connection.execute(statement("queue/cancel"), {"ids": [job_id]})
        if found.one_or_none() is not None:
            return True
        await self.snapshot(job_id)
        return False

    async def artifact(self, snapshot: Snapshot) -> Artifact:
        """The accepted artifact of a job that succeeded. Raises `UnreadableArtifactError`."""
        wanted = {"id": snapshot.id, "kind": snapshot.kind}
        with reaching(self.settings):
            async with self._engine.connect() as connection:
                found = await connection.execute(statement("producer/artifact"), wanted)
        return read_artifact(snapshot, found.scalar_one_or_none())

    async def close(self) -> None:
        """Close the connections."""
        await self._engine.dispose()

    async def _insert(self, connection: AsyncConnection, drafts: list[Draft]) -> list[Draft]:
        tenant = self.settings.tenant
        taken = (await connection.execute(statement("producer/enqueue"), parameters(drafts, tenant))).one().taken
        if not taken:
            return drafts
        wanted = {"tenant": tenant, "keys": taken_keys(drafts, taken)}
        rows = await connection.execute(statement("producer/jobs_by_key"), wanted)
        return settle(drafts, {row.idempotency_key: (row.id, row.digest) for row in rows})

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class AsyncJob:
    """A handle on one job: an id and its kind. Everything else is asked of the database."""

    def __init__(self, producer: AsyncProducer, job_id: UUID, kind: str) -> None:
        self._producer = producer
        self.id = job_id
        self.kind = kind

    async def refresh(self) -> Snapshot:
        """Where it is now. Raises `UnknownJobError` when it has been deleted."""
        return await self._producer.snapshot(self.id)

    async def state(self) -> JobState:
        """Its state now."""
        return (await self.refresh()).state

    async def cancel(self) -> bool:
        """Cancel it: at once when it waits, soon when it runs. False when it had ended."""
        return await self._producer.cancel(self.id)

    async def result(self, timeout: float | None = None) -> Artifact:  # noqa: ASYNC109 - one signature for both twins
        """Wait for its artifact, of its kind's type; without `timeout` (seconds), for as long as it takes.

        Raises `ResultTimeoutError`; `JobFailedError`, `JobCancelledError` or `JobExpiredError` when it ended without.
        """
        patience = Patience(self.id, timeout)
        while not (snapshot := await self.refresh()).succeeded():  # noqa: ASYNC110 - the event is in the database
            await asyncio.sleep(patience.pause(snapshot.state))
        return await self._producer.artifact(snapshot)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.id}, {self.kind!r})"
