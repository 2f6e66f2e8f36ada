"""`Producer` and `Job`: run `operations` on the caller's thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, cast, overload
from uuid import UUID

from sqlalchemy import Connection, Engine

from thothy_ai.db.connect import make_engine, reaching
from thothy_ai.db.driver import within
from thothy_ai.db.states import Action, JobState
from thothy_ai.jobs import Artifact, Request
from thothy_ai.jobs.api.kind import A, A_co
from thothy_ai.producer import operations
from thothy_ai.producer.batches import BatchDraft, draft_batch, draft_one
from thothy_ai.producer.decisions import CurrentVersion, Decision
from thothy_ai.producer.drafts import Draft, EnqueueOptions, Entry, draft, draft_all
from thothy_ai.producer.gathering import Ended, Gathering, ids_of
from thothy_ai.producer.joined import joined
from thothy_ai.producer.listener import Waiter
from thothy_ai.producer.operations import Jobs, Operation, Pause, ProducerBase, Query, Rows, Transaction, Wait, drive
from thothy_ai.producer.snapshot import PollSchedule, Snapshot, parse_id
from thothy_ai.queue.changes import KEEP, Change, Keep
from thothy_ai.settings import Settings

if TYPE_CHECKING:
    from thothy_ai.producer.joined import Given

T = TypeVar("T")


class Producer(ProducerBase):
    """Enqueues jobs and looks them up. Thread-safe. Close it, or use it as a context manager.

    It sees only its own tenant's jobs; to it, no others exist.

    Every method raises `DatabaseUnreachableError` if Postgres cannot be reached, and `MigrationsBehindError` if its
    schema is older than this code.
    """

    def __init__(self, settings: Settings) -> None:
        self._engine = make_engine(settings, application="producer")
        super().__init__(settings)

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

        `webhook`, a URL, is notified of the job's end. An existing job keeps its own webhook.

        With `connection`, the job belongs to the transaction that the connection or session is in: it runs after the
        commit, and does not exist after a rollback.

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
        batch: UUID | bool = False,
        connection: Given | None = None,
    ) -> Jobs[Job[A]]:
        """Enqueue requests, or pairs of request and `EnqueueOptions`, in one transaction: all of them or none.

        Each statement inserts up to 10,000 jobs, and 16 million characters of requests. A request can have 16 million
        characters as JSON, and a call 4,000 million, counting shared texts once.

        With `webhook`, a URL, the jobs are a batch, with their follow-ups. The webhook is notified when all of them
        have ended, or with `notify="job"` of the end of each. Jobs that existed are not part of it. `batch=True` makes
        a batch without a webhook; with an id, the jobs join a batch that the caller keeps.

        Returns the jobs in the order of `entries`, with the id of the batch. Raises the same errors as `enqueue`,
        naming the entry; two entries with one idempotency key and different requests conflict as well.
        """
        return self._enqueue(draft_all(entries, self.settings), connection, draft_batch(webhook, notify, batch))

    @overload
    def wait_all(self, jobs: Iterable[Job[A]], timeout: float | None = None) -> list[Ended[A]]: ...

    @overload
    def wait_all(self, jobs: Iterable[Job | UUID | str], timeout: float | None = None) -> list[Ended[Any]]: ...

    def wait_all(self, jobs: Iterable[Job | UUID | str], timeout: float | None = None) -> list[Ended[Any]]:
        """Wait up to `timeout` seconds (None: indefinitely) until all have ended; returns outcomes in the order given.

        A timeout of 0 or less looks once. `jobs` are handles or ids. One query serves many jobs. Raises
        `WaitTimeoutError`, which names the open ones, `UnknownJobError`, and `InvalidJobError` for anything that is
        neither a job nor an id.
        """
        gathering = Gathering(ids_of(jobs), timeout)
        return self._wait(gathering.ids, gathering.schedule, lambda waiter: operations.wait_all(gathering, waiter))

    def job(self, job_id: UUID | str) -> Job:
        """Return the job with this id. Raises `UnknownJobError`, or `InvalidJobError` if the id is malformed."""
        snapshot = self.snapshot(parse_id(job_id))
        return Job(self, snapshot.id, snapshot.kind)

    def snapshot(self, job_id: UUID) -> Snapshot:
        """Read the current state of a job. Raises `UnknownJobError`."""
        return self._transact(operations.read_snapshot(job_id))

    def cancel(self, job_id: UUID) -> bool:
        """Cancel a job: immediately while it waits, within a heartbeat while it runs.

        Returns False if the job had already ended. Raises `UnknownJobError`.
        """
        return self._transact(operations.cancel(job_id))

    def change(
        self,
        job_id: UUID,
        *,
        priority: int | Keep = KEEP,
        deadline: datetime | Keep | None = KEEP,
        not_before: datetime | Keep | None = KEEP,
    ) -> bool:
        """Change a waiting job's priority or times; None removes a time. A dispatched job is queued again.

        Returns False if the job no longer waits. Raises `UnknownJobError`, and `InvalidJobError` as for `enqueue`.
        """
        return self._transact(operations.change(job_id, Change(priority, deadline, not_before)))

    def artifact(self, snapshot: Snapshot) -> Artifact:
        """Read the accepted artifact of a succeeded job. Raises `UnreadableArtifactError`."""
        return self._transact(operations.accepted_artifact(snapshot))

    def close(self) -> None:
        """Close all database connections of this producer."""
        self._listener.close()
        self._engine.dispose()

    def _sync_engine(self) -> Engine:
        return self._engine

    def _enqueue(self, drafts: list[Draft], given: Given | None, batch: BatchDraft | None) -> Jobs[Job[A]]:
        if not drafts:
            return Jobs()
        settled, batch_id = self._transact(operations.enqueue(drafts, self.settings.tenant, batch), given)
        return Jobs((Job[A](self, one.id, one.kind, existed=one.existed) for one in settled), batch_id)

    def _transact(self, operation: Transaction[T], given: Given | None = None) -> T:
        """Run it in the caller's transaction, or in a new one."""
        with reaching(self.settings), self._engine.begin() if given is None else joined(given) as connection:
            return drive(operation, lambda query: self._execute(connection, query))

    def _wait(self, ids: Iterable[UUID], schedule: PollSchedule, start: Callable[[Waiter], Operation[T]]) -> T:
        """Run an operation that is woken when these jobs end; its statements keep the schedule's timeout."""
        notified = threading.Event()

        def perform(step: Query | Wait | Pause) -> Rows | bool | None:
            match step:
                case Query():
                    limit = within(schedule.limit)
                    with limit, reaching(self.settings), self._engine.connect() as connection:
                        return self._execute(connection, step)
                case Wait(seconds):
                    was_set = notified.wait(seconds)
                    notified.clear()
                    return was_set
                case Pause(seconds):
                    time.sleep(seconds)
                    return None

        with self._listener.waiting(ids, notified.set) as waiter:
            return drive(start(waiter), perform)

    def _execute(self, connection: Connection, query: Query) -> Rows:
        return operations.rows_of(connection.execute(*self._statement(query)))

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
        """Read only the job's state. Raises the same errors as `refresh`."""
        return self.refresh().state

    def cancel(self) -> bool:
        """Cancel the job: immediately while it waits, within a heartbeat while it runs. False if it had ended."""
        return self._producer.cancel(self.id)

    def change(
        self,
        *,
        priority: int | Keep = KEEP,
        deadline: datetime | Keep | None = KEEP,
        not_before: datetime | Keep | None = KEEP,
    ) -> bool:
        """Change when the job is to run, as `Producer.change` does. False if it no longer waits."""
        return self._producer.change(self.id, priority=priority, deadline=deadline, not_before=not_before)

    def result(self, timeout: float | None = None, *, approved: bool = False) -> A_co:
        """Wait up to `timeout` seconds (None: indefinitely) for the artifact, an instance of the kind's artifact class.

        With `approved`, wait until a person has approved it. An approved version is always the result.

        A timeout of 0 or less looks once. Raises `ResultTimeoutError`, or `JobFailedError`, `JobCancelledError` or
        `JobExpiredError` if the job ended without an artifact, and `ArtifactRejectedError` if a person rejected it.
        """
        schedule = PollSchedule(timeout)
        artifact = self._producer._wait(
            [self.id], schedule, lambda waiter: operations.result(self.id, schedule, waiter, approved=approved)
        )
        return cast("A_co", artifact)

    def artifact(self) -> JobArtifact:
        """The artifact as a person sees it: its current version, findings and decisions, and the drafts of gates.

        Raises `UnknownJobError`.
        """
        return JobArtifact(self._producer, self._producer._transact(operations.current_version(self.id)))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.id}, {self.kind!r})"


class JobArtifact:
    """The `current` version of a job's artifact, for a person to decide on."""

    def __init__(self, producer: Producer, current: CurrentVersion) -> None:
        self._producer = producer
        self.current = current

    def decide(
        self,
        action: Action | str,
        *,
        by: str,
        note: str | None = None,
        body: Mapping[str, Any] | None = None,
        voice: str | None = None,
    ) -> JobArtifact:
        """Approve, edit, reject, send back, hold or reopen this version, in one transaction; returns the current one.

        `by` names the person. `note` gives the reason for a rejection, or instructions for the next attempt; both need
        one. `body` has all fields of an edit. The same checks run on it, and their findings are stored with the
        version; an edit that breaks the schema is a draft. An approved artifact becomes an example of the `voice`.

        Raises `DecisionConflictError` if somebody has decided on this version, `InvalidDecisionError`,
        `NothingToDecideError` unless the job has succeeded, and `UnknownJobError` if it has been deleted.
        """
        decision = Decision(action, by, note, body, voice)
        current = self.current
        operation = operations.decide(current.job_id, current.version, decision, current.check(decision))
        return JobArtifact(self._producer, self._producer._transact(operation))
