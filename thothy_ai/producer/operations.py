"""A producer's operations without I/O: generators that yield queries and waits and receive their results.

`Producer` runs them on the caller's thread, `AsyncProducer` on an event loop, as httpx does with authentication flows.
"""

from __future__ import annotations

import json
import os
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, ClassVar, Self, TypeAlias, TypeVar
from uuid import UUID
from weakref import WeakSet

from sqlalchemy import CursorResult, Engine, RowMapping, TextClause

from thothy_ai.db.statements import qualified
from thothy_ai.db.states import Action, ReviewState
from thothy_ai.errors import DatabaseError, ResultTimeoutError, UnknownJobError
from thothy_ai.jobs import Artifact
from thothy_ai.jobs.api.requests import named_brief
from thothy_ai.producer.batches import BatchDraft
from thothy_ai.producer.briefs import briefed
from thothy_ai.producer.decisions import CurrentVersion, Decision
from thothy_ai.producer.drafts import Draft, insertion, load_kinds, portions, settle, taken_keys
from thothy_ai.producer.gathering import Ended, Gathering
from thothy_ai.producer.listener import Listener, Waiter
from thothy_ai.producer.snapshot import PollSchedule, Snapshot, read_artifact
from thothy_ai.queue.changes import Change, too_late
from thothy_ai.queue.edits import CheckedEdit
from thothy_ai.queue.follow_ups import settled
from thothy_ai.settings import Settings

J = TypeVar("J")
T = TypeVar("T")
S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class Query:
    """A named statement and its parameters, except the tenant. Its rows are sent back."""

    name: str
    parameters: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait for a notification, for at most `seconds`. The result sent back is whether one came."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Pause:
    """Let `seconds` pass. None is sent back."""

    seconds: float


Rows: TypeAlias = Sequence[RowMapping]
Transaction: TypeAlias = Generator[Query, Rows, T]  # its queries run in one transaction
Operation: TypeAlias = Generator[Query | Wait | Pause, Any, T]  # each query runs in a transaction of its own


def enqueue(drafts: list[Draft], tenant: str, batch: BatchDraft | None) -> Transaction[tuple[list[Draft], UUID | None]]:
    """Insert the drafts. Returns them with the ids that their jobs have, and the id of the batch if it got a job.

    Raises `IdempotencyConflictError`, and `InvalidJobError` for a brief that is not stored.
    """
    asked, drafts = drafts, (yield from with_stored_briefs(drafts, tenant))
    holders: list[RowMapping] = []
    for part in portions(drafts):
        (inserted,) = yield Query(*insertion(part, tenant, batch.id if batch else None))
        if inserted["taken"]:
            holders += yield Query("producer/jobs_by_key", {"keys": taken_keys(part, inserted["taken"])})
    if holders:  # a first job may just have got another version of a stored brief
        again = {draft.id: draft for draft in (yield from with_stored_briefs(asked, tenant))}
        drafts = [again[draft.id] for draft in drafts]
    drafts = settle(drafts, holders)
    count = len({draft.id for draft in drafts if not draft.existed})
    if batch is None or not count:
        return drafts, None
    if not batch.recorded:
        yield Query("producer/batch", batch.row(count))
    return drafts, batch.id


def with_stored_briefs(drafts: list[Draft], tenant: str) -> Transaction[list[Draft]]:
    """The drafts with the stored briefs that they name. Raises `InvalidJobError`, naming the entry.

    A draft whose idempotency key is taken gets the first job's version, whatever was stored since.
    """
    named = {draft.id: brief for draft in drafts if draft.unbriefed and (brief := named_brief(draft.unbriefed))}
    if not named:
        return drafts
    keys = sorted({key for draft in drafts if draft.id in named and (key := draft.options.idempotency_key)})
    rows = (yield Query("producer/requests_by_key", {"keys": keys})) if keys else ()
    first = {row["idempotency_key"]: row["request"] for row in rows}
    wanted = [{"name": brief.name, "version": brief.version} for brief in dict.fromkeys(named.values())]
    rows = yield Query("producer/briefs", {"wanted": json.dumps(wanted)})
    stored = {(row["name"], row["asked"]): dict(row) for row in rows}
    return [
        briefed(draft, brief, stored.get((brief.name, brief.version)), first.get(draft.options.idempotency_key), tenant)
        if (brief := named.get(draft.id))
        else draft
        for draft in drafts
    ]


def read_snapshot(job_id: UUID) -> Transaction[Snapshot]:
    """The job's current state. Raises `UnknownJobError`."""
    rows = yield Query("producer/snapshot", {"id": job_id})
    return Snapshot.of(rows[0] if rows else None, job_id)


def cancel(job_id: UUID) -> Transaction[bool]:
    """False if the job had already ended. Raises `UnknownJobError`."""
    if (yield Query("queue/cancel", {"ids": [job_id]})):
        return True
    yield from read_snapshot(job_id)
    return False


def change(job_id: UUID, wanted: Change) -> Transaction[bool]:
    """False if the job no longer waits. Raises `UnknownJobError`, and `InvalidJobError` if it would start too late."""
    if rows := (yield Query("queue/change", {"ids": [job_id], **wanted.parameters()})):
        if not rows[0]["changed"]:
            raise too_late()
        return True
    yield from read_snapshot(job_id)
    return False


def accepted_artifact(snapshot: Snapshot) -> Transaction[Artifact]:
    """The artifact of a succeeded job. Raises `NeedsEditError`, `UnreadableArtifactError`."""
    rows = yield Query("producer/artifacts", {"ids": [snapshot.id]})
    return read_artifact(snapshot, rows[0] if rows else None)


def current_version(job_id: UUID) -> Transaction[CurrentVersion]:
    """The version of a job's artifact that is decided on next. Raises `UnknownJobError`."""
    rows = yield Query("queue/current_version", {"id": job_id})
    if not rows:
        raise UnknownJobError(job_id)
    return CurrentVersion.of(rows[0], (yield Query("queue/decisions", {"id": job_id})))


def decide(job_id: UUID, version: int, decision: Decision, checked: CheckedEdit | None) -> Transaction[CurrentVersion]:
    """Returns the version to decide on next. An edit is `checked` beforehand, so that the transaction need not wait.

    Raises `UnknownJobError`, and as `CurrentVersion.refusal`.
    """
    current = yield from current_version(job_id)
    parameters = current.parameters(version, decision, checked)
    wanted = current.follow_ups() if decision.action is Action.APPROVE and version == current.version else []
    made = yield Query("queue/decide", parameters)
    current = yield from current_version(job_id)
    if not made:
        raise current.refusal(version, decision)
    if decision.action in {Action.APPROVE, Action.REJECT}:
        rows, stale = settled(wanted, (yield Query("queue/follow_ups_of", {"ids": [job_id]})))
        if stale:
            yield Query("queue/supersede", {"ids": stale})
        if rows:
            yield Query("queue/follow_ups", {"rows": json.dumps(rows)})
    return current


def result(job_id: UUID, schedule: PollSchedule, waiter: Waiter, *, approved: bool = False) -> Operation[Artifact]:
    """Raises `ResultTimeoutError`, or the `JobEndedError` of a job that ended without an artifact."""
    state = None
    try:
        while True:
            snapshot = yield from read_snapshot(job_id)
            if snapshot.succeeded() and (snapshot.review is ReviewState.APPROVED or not approved):
                break
            state = snapshot.review or (snapshot.state if snapshot.finished_at is None else "undecided")
            delay = schedule.next_delay(listening=waiter.listen())
            if delay is None:
                raise ResultTimeoutError(job_id, state, schedule.timeout)
            yield Wait(delay)
        return (yield from accepted_artifact(snapshot))
    except DatabaseError as error:
        if schedule.is_over:  # the caller's timeout ended the statement
            raise ResultTimeoutError(job_id, state, schedule.timeout) from error
        raise


def wait_all(gathering: Gathering, waiter: Waiter) -> Operation[list[Ended[Any]]]:
    """How each job ended. Raises `WaitTimeoutError` and `UnknownJobError`."""
    notified: set[UUID] | None = None  # None: any job may have ended
    found: dict[UUID, RowMapping] = {}
    try:
        while True:
            for asked in gathering.ask(notified):
                gathering.note(asked, (yield Query("producer/snapshots", {"ids": asked})))
            if gathering.done:
                break
            woken = yield Wait(gathering.next_delay(listening=waiter.listen()))
            notified = waiter.take() if woken else None
            yield Pause(gathering.linger(notified))
            more = waiter.take()
            notified = None if notified is None or more is None else notified | more
        for ids in gathering.succeeded():
            rows = yield Query("producer/artifacts", {"ids": ids})
            found.update({row["job_id"]: row for row in rows})
    except DatabaseError as error:
        if gathering.schedule.is_over:
            raise gathering.timed_out() from error
        raise
    return gathering.outcomes(found)


def drive(operation: Generator[S, Any, T], perform: Callable[[S], Any]) -> T:
    """Run an operation to its end; `perform` does each step that it yields. Its `DatabaseError` is raised there."""
    proceed, answer = operation.send, None
    while True:
        try:
            step = proceed(answer)
        except StopIteration as end:
            value: T = end.value
            return value
        try:
            proceed, answer = operation.send, perform(step)
        except DatabaseError as error:
            proceed, answer = operation.throw, error


async def drive_async(operation: Generator[S, Any, T], perform: Callable[[S], Awaitable[Any]]) -> T:
    """Run an operation to its end on an event loop."""
    proceed, answer = operation.send, None
    while True:
        try:
            step = proceed(answer)
        except StopIteration as end:
            value: T = end.value
            return value
        try:
            proceed, answer = operation.send, await perform(step)
        except DatabaseError as error:
            proceed, answer = operation.throw, error


class ProducerBase:
    """The state of both producers: settings, kinds, a pool of connections and a listener.

    After a fork, the child gets a new pool and a new listener, and the parent's stay untouched.
    """

    _all: ClassVar[WeakSet[ProducerBase]] = WeakSet()
    _inherited: ClassVar[
        list[object]
    ] = []  # from a parent: kept, because collecting them would warn that they are open

    def __init__(self, settings: Settings) -> None:
        load_kinds(settings)
        self.settings = settings
        self._listener = Listener(settings)
        self._all.add(self)

    def of_tenant(self, tenant: str) -> Self:
        """A producer for another tenant over the same connections. Close only the original."""
        other = copy(self)
        other.settings = self.settings.model_copy(update={"tenant": tenant})
        return other

    def _sync_engine(self) -> Engine:
        raise NotImplementedError

    @classmethod
    def _start_anew(cls) -> None:
        for producer in cls._all:
            engine = producer._sync_engine()
            cls._inherited += (engine.pool, producer._listener)
            engine.dispose(close=False)
            producer._listener = Listener(producer.settings)

    @classmethod
    def from_env(cls) -> Self:
        """Create from `THOTHY_*`, or from the embedded stack running in `$THOTHY_HOME`. Raises `ConfigError`."""
        return cls(Settings.load())

    @classmethod
    def from_settings(cls, settings: Settings) -> Self:
        """Create from settings. Raises `ConfigError` if they do not name a database."""
        return cls(settings)

    def _statement(self, query: Query) -> tuple[TextClause, dict[str, object]]:
        statement = qualified(query.name, self.settings.database_schema)
        return statement, {**query.parameters, "tenant": self.settings.tenant}


os.register_at_fork(after_in_child=ProducerBase._start_anew)


def rows_of(found: CursorResult[Any]) -> Rows:
    """All rows; none of a statement that returns none."""
    return found.mappings().all() if found.returns_rows else ()


class Jobs(list[J]):
    """Handles in the order of the entries. `batch_id` is their batch's, if a webhook is notified of new jobs."""

    def __init__(self, jobs: Iterable[J] = (), batch_id: UUID | None = None) -> None:
        super().__init__(jobs)
        self.batch_id = batch_id
