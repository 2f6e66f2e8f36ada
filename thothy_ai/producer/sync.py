"""`Producer` and `Job`. `aio` holds the async versions; everything except I/O is in `drafts` and `snapshot`."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Generic, Self, cast, overload
from uuid import UUID

from sqlalchemy import Connection, RowMapping, TextClause

from thothy_ai.db.connect import make_engine, reaching
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
from thothy_ai.producer.joined import Given, joined
from thothy_ai.producer.listener import Listener
from thothy_ai.producer.snapshot import PollSchedule, Snapshot, parse_id, read_artifact
from thothy_ai.settings import Settings


class Producer:
    """Enqueues jobs and looks them up. Thread-safe. Close it, or use it as a context manager.

    It sees the jobs of its own tenant only: to it, those of others do not exist.

    Every method raises `DatabaseUnreachableError` if Postgres cannot be reached, and `MigrationsBehindError` if its
    schema is older than this code.
    """

    def __init__(self, settings: Settings) -> None:
        load_kinds(settings)
        self.settings = settings
        self._engine = make_engine(settings, application="producer")
        self._listener = Listener(settings)

    @classmethod
    def from_env(cls) -> Self:
        """Create from `THOTHY_*`, or from the embedded stack running in `$THOTHY_HOME`. Raises `ConfigError`."""
        return cls(Settings.load())

    @classmethod
    def from_settings(cls, settings: Settings) -> Self:
        """Create from settings. Raises `ConfigError` if they do not name a database."""
        return cls(settings)

    def enqueue(
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
        connection: Given | None = None,
    ) -> Job[A]:
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
        jobs: Jobs[Job[A]] = self._enqueue(drafts, connection, draft_one(webhook))
        return jobs[0]

    def enqueue_many(
        self,
        entries: Iterable[Entry[A]],
        *,
        webhook: str | None = None,
        notify: str = "batch",
        connection: Given | None = None,
    ) -> Jobs[Job[A]]:
        """Enqueue requests, or pairs of request and `EnqueueOptions`, in one statement: all of them or none.

        With `webhook`, a URL, the jobs are a batch, with their follow-ups. The webhook is told when all of them have
        ended, or with `notify="job"` of the end of each. Jobs that existed are not part of it.

        Returns the jobs in the order of `entries`, with the id of the batch. Raises the same errors as `enqueue`,
        naming the entry; two entries with one idempotency key and different requests are a conflict, too.
        """
        return self._enqueue(draft_all(entries, self.settings), connection, draft_batch(webhook, notify))

    @overload
    def wait_all(self, jobs: Iterable[Job[A]], timeout: float | None = None) -> list[Ended[A]]: ...

    @overload
    def wait_all(self, jobs: Iterable[Job | UUID | str], timeout: float | None = None) -> list[Ended[Any]]: ...

    def wait_all(self, jobs: Iterable[Job | UUID | str], timeout: float | None = None) -> list[Ended[Any]]:
        """Wait up to `timeout` seconds (None: indefinitely) until all have ended; how each did, in the order given.

        A timeout of 0 or less looks once. `jobs` are handles or ids. One query serves many jobs. Raises
        `WaitTimeoutError`, which names the open ones, `UnknownJobError`, and `InvalidJobError` for what is no job and
        no id.
        """
        gathering = Gathering(ids_of(jobs), timeout)
        event = threading.Event()
        told: set[UUID] | None = None
        with self._listener.waiting(gathering.ids, event.set) as waiting:
            while not self._ended(gathering, told):
                event.wait(gathering.next_delay(listening=waiting.listen()))
                told = waiting.take() if event.is_set() else None
                time.sleep(gathering.linger(told))
                event.clear()
                more = waiting.take()
                told = None if told is None or more is None else told | more
        bodies: dict[UUID, object] = {}
        for ids, kinds in gathering.succeeded():
            rows = self._read("producer/artifacts", ids=ids, kinds=kinds)
            bodies.update({row["job_id"]: row["body"] for row in rows})
        return gathering.outcomes(bodies)

    def job(self, job_id: UUID | str) -> Job:
        """Return the job with this id. Raises `UnknownJobError`, or `InvalidJobError` if the id is malformed."""
        snapshot = self.snapshot(parse_id(job_id))
        return Job(self, snapshot.id, snapshot.kind)

    def snapshot(self, job_id: UUID) -> Snapshot:
        """Read the current state of a job. Raises `UnknownJobError`."""
        with reaching(self.settings), self._engine.connect() as connection:
            row = connection.execute(self._sql("producer/snapshot"), self._own(id=job_id)).mappings().one_or_none()
        return Snapshot.of(row, job_id)

    def cancel(self, job_id: UUID) -> bool:
        """Cancel a job: immediately while it waits, within a heartbeat while it runs.

        Returns False if the job had already ended. Raises `UnknownJobError`.
        """
        with reaching(self.settings), self._engine.begin() as connection:
            if connection.execute(self._sql("queue/cancel"), self._own(ids=[job_id])).one_or_none() is not None:
                return True
        self.snapshot(job_id)
        return False

    def artifact(self, snapshot: Snapshot) -> Artifact:
        """Read the accepted artifact of a succeeded job. Raises `UnreadableArtifactError`."""
        key = self._own(id=snapshot.id, kind=snapshot.kind)
        with reaching(self.settings), self._engine.connect() as connection:
            body = connection.execute(self._sql("producer/artifact"), key).scalar_one_or_none()
        return read_artifact(snapshot, body)

    def close(self) -> None:
        """Close all database connections."""
        self._listener.close()
        self._engine.dispose()

    def _ended(self, gathering: Gathering, told: set[UUID] | None) -> bool:
        asked = gathering.ask(told)
        if asked:
            gathering.note(asked, self._read("producer/snapshots", ids=asked))
        return gathering.done

    def _read(self, name: str, **parameters: object) -> Sequence[RowMapping]:
        with reaching(self.settings), self._engine.connect() as connection:
            return connection.execute(self._sql(name), self._own(**parameters)).mappings().all()

    def _enqueue(self, drafts: list[Draft], given: Given | None, batch: BatchDraft | None) -> Jobs[Job[A]]:
        if not drafts:
            return Jobs()
        with reaching(self.settings), self._engine.begin() if given is None else joined(given) as connection:
            settled = self._insert(connection, drafts, batch)
            made = inserted(settled)
            if batch and made:
                connection.execute(self._sql("producer/batch"), batch.row(self.settings.tenant, made))
        jobs = (Job[A](self, one.id, one.kind, existed=one.existed) for one in settled)
        return Jobs(jobs, batch.id if batch and made else None)

    def _insert(self, connection: Connection, drafts: list[Draft], batch: BatchDraft | None) -> list[Draft]:
        name, given = insertion(drafts, self.settings.tenant, batch.id if batch else None)
        taken = connection.execute(self._sql(name), given).one().taken
        if not taken:
            return drafts
        conflicts = self._own(keys=taken_keys(drafts, taken))
        return settle(drafts, connection.execute(self._sql("producer/jobs_by_key"), conflicts).all())

    def _sql(self, name: str) -> TextClause:
        return qualified(name, self.settings.database_schema)

    def _own(self, **parameters: object) -> dict[str, object]:
        return {**parameters, "tenant": self.settings.tenant}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Job(Generic[A_co]):
    """A handle to one job: its id and kind. Everything else is read from the database on each call.

    `existed`: the job was there before the call that returned this handle, which enqueued nothing.
    """

    def __init__(self, producer: Producer, job_id: UUID, kind: str, *, existed: bool = True) -> None:
        self._producer = producer
        self.id = job_id
        self.kind = kind
        self.existed = existed

    def refresh(self) -> Snapshot:
        """Read the job's current state. Raises `UnknownJobError` if it has been deleted."""
        return self._producer.snapshot(self.id)

    def state(self) -> JobState:
        """Read only the job's state. Raises as `refresh`."""
        return self.refresh().state

    def cancel(self) -> bool:
        """Cancel the job: immediately while it waits, within a heartbeat while it runs. False if it had ended."""
        return self._producer.cancel(self.id)

    def result(self, timeout: float | None = None) -> A_co:
        """Wait up to `timeout` seconds (None: indefinitely) for the artifact, an instance of the kind's artifact class.

        A timeout of 0 or less looks once. Raises `ResultTimeoutError`, or `JobFailedError`, `JobCancelledError` or
        `JobExpiredError` if the job ended without an artifact.
        """
        schedule = PollSchedule(self.id, timeout)
        ended = threading.Event()
        with self._producer._listener.waiting([self.id], ended.set) as waiting:
            while not (snapshot := self.refresh()).succeeded():
                ended.wait(schedule.next_delay(snapshot.state, listening=waiting.listen()))
                ended.clear()
        return cast("A_co", self._producer.artifact(snapshot))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.id}, {self.kind!r})"
