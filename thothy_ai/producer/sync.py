"""`Producer` and `Job`. `aio` is the async twin; all that is not I/O lives in `drafts` and `snapshot`."""

from __future__ import annotations

import time
from collections.abc import Iterable
from datetime import datetime
from types import TracebackType
from typing import Self
from uuid import UUID

from sqlalchemy import Connection

from thothy_ai.db.connect import make_engine, reaching
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


class Producer:
    """Enqueues jobs and finds them again. Safe to share between threads; close it, or use it in a `with`.

    Every method raises `DatabaseUnreachableError` when Postgres cannot be reached, and `MigrationsBehindError` when its
    schema is older than this code.
    """

    def __init__(self, settings: Settings) -> None:
        load_kinds(settings)
        self.settings = settings
        self._engine = make_engine(settings, application="producer")

    @classmethod
    def from_env(cls) -> Self:
        """From `THOTHY_*`, or from the embedded stack that runs in `$THOTHY_HOME`. Raises `ConfigError`."""
        return cls(Settings.load())

    @classmethod
    def from_settings(cls, settings: Settings) -> Self:
        """From settings. Raises `ConfigError` when they name no database."""
        return cls(settings)

    def enqueue(
        self,
        request: Request,
        *,
        priority: int = 0,
        deadline: datetime | None = None,
        not_before: datetime | None = None,
        idempotency_key: str | None = None,
        max_attempts: int | None = None,
    ) -> Job:
        """Enqueue one job; with an idempotency key, return the job that already holds it.

        Raises `InvalidJobError`, and `IdempotencyConflictError` when the key's job has another request.
        """
        options = EnqueueOptions(priority, deadline, not_before, idempotency_key, max_attempts)
        return self.enqueue_many([(request, options)])[0]

    def enqueue_many(self, entries: Iterable[Entry]) -> list[Job]:
        """Enqueue requests, or pairs of request and `EnqueueOptions`, in one statement: all or none.

        Raises as `enqueue`.
        """
        drafts = draft_all(entries, self.settings)
        if not drafts:
            return []
        with reaching(self.settings), self._engine.begin() as connection:
            settled = self._insert(connection, drafts)
        return [Job(self, draft.id, draft.kind) for draft in settled]

    def job(self, job_id: UUID | str) -> Job:
        """The job with this id. Raises `UnknownJobError`; `InvalidJobError` when it is not an id."""
        snapshot = self.snapshot(parse_id(job_id))
        return Job(self, snapshot.id, snapshot.kind)

    def snapshot(self, job_id: UUID) -> Snapshot:
        """Where this job is now. Raises `UnknownJobError`."""
        with reaching(self.settings), self._engine.connect() as connection:
            row = connection.execute(statement("producer/snapshot"), {"id": job_id}).mappings().one_or_none()
        return Snapshot.of(row, job_id)

    def cancel(self, job_id: UUID) -> bool:
        """Cancel a job: at once when it waits, soon when it runs. False when it had ended. Raises `UnknownJobError`."""
        with reaching(self.settings), self._engine.begin() as connection:
            if connection.execute(statement("queue/cancel"), {"ids": [job_id]}).one_or_none() is not None:
                return True
        self.snapshot(job_id)
        return False

    def artifact(self, snapshot: Snapshot) -> Artifact:
        """The accepted artifact of a job that succeeded. Raises `UnreadableArtifactError`."""
        wanted = {"id": snapshot.id, "kind": snapshot.kind}
        with reaching(self.settings), self._engine.connect() as connection:
            body = connection.execute(statement("producer/artifact"), wanted).scalar_one_or_none()
        return read_artifact(snapshot, body)

    def close(self) -> None:
        """Close the connections."""
        self._engine.dispose()

    def _insert(self, connection: Connection, drafts: list[Draft]) -> list[Draft]:
        tenant = self.settings.tenant
        taken = connection.execute(statement("producer/enqueue"), parameters(drafts, tenant)).one().taken
        if not taken:
            return drafts
        wanted = {"tenant": tenant, "keys": taken_keys(drafts, taken)}
        rows = connection.execute(statement("producer/jobs_by_key"), wanted).all()
        return settle(drafts, {row.idempotency_key: (row.id, row.digest) for row in rows})

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Job:
    """A handle on one job: an id and its kind. Everything else is asked of the database."""

    def __init__(self, producer: Producer, job_id: UUID, kind: str) -> None:
        self._producer = producer
        self.id = job_id
        self.kind = kind

    def refresh(self) -> Snapshot:
        """Where it is now. Raises `UnknownJobError` when it has been deleted."""
        return self._producer.snapshot(self.id)

    def state(self) -> JobState:
        """Its state now."""
        return self.refresh().state

    def cancel(self) -> bool:
        """Cancel it: at once when it waits, soon when it runs. False when it had ended."""
        return self._producer.cancel(self.id)

    def result(self, timeout: float | None = None) -> Artifact:
        """Wait for its artifact, of its kind's type; without `timeout` (seconds), for as long as it takes.

        Raises `ResultTimeoutError`; `JobFailedError`, `JobCancelledError` or `JobExpiredError` when it ended without.
        """
        patience = Patience(self.id, timeout)
        while not (snapshot := self.refresh()).succeeded():
            time.sleep(patience.pause(snapshot.state))
        return self._producer.artifact(snapshot)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.id}, {self.kind!r})"
