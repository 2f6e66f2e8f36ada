"""What operators ask of the queue and do to it: lists, one job in full, retry, cancel, pause.

Every call is one transaction on the engine it is given, and returns plain values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Engine, Row, select, text

from thothy_ai.db.models import Attempt, Job, JobEvent, JobRequest
from thothy_ai.db.statements import statement
from thothy_ai.db.states import JobState
from thothy_ai.errors import UnknownJobError

REDRIVABLE = (JobState.DEAD, JobState.CANCELLED, JobState.EXPIRED)
WAKE_DISPATCHER = text("SELECT pg_notify('thothy_queued', '')")


@dataclass(frozen=True, slots=True)
class StateCount:
    """The open jobs of one state. `due_age`: seconds that the oldest job allowed to run has waited; None if none is."""

    jobs: int = 0
    due_age: float | None = None
    delayed: int = 0
    with_deadline: int = 0
    due_1h: int = 0
    due_6h: int = 0
    due_24h: int = 0
    expired_leases: int = 0


@dataclass(frozen=True, slots=True)
class QueueStatus:
    """The queue at one moment, by open state, and what an operator has said about it."""

    states: Mapping[str, StateCount]
    paused: bool
    changed_at: datetime | None
    note: str | None

    def __getitem__(self, state: str) -> StateCount:
        return self.states.get(state, StateCount())

    @property
    def open(self) -> int:
        """Jobs not finished."""
        return sum(count.jobs for count in self.states.values())

    @property
    def oldest_age(self) -> float:
        """Seconds that the oldest waiting job has been allowed to run and has not; 0 when none waits."""
        return max(self["queued"].due_age or 0.0, self["dispatched"].due_age or 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Progress:
    """A drain at one moment: open jobs, jobs finished since it began, and when the oldest open one was enqueued."""

    open: int
    finished: int
    oldest: datetime | None
    now: datetime


def progress(engine: Engine, since: datetime | None) -> Progress:
    """How far the drain that began at `since` is (None: it begins now)."""
    with engine.connect() as connection:
        return Progress(*connection.execute(statement("operate_progress"), {"since": since}).one())


def queue_status(engine: Engine) -> QueueStatus:
    """The queue at this moment."""
    with engine.connect() as connection:
        rows = connection.execute(statement("operate_queue")).mappings().all()
        control = connection.execute(statement("operate_control")).one_or_none()
    states = {row["state"]: StateCount(**{k: v for k, v in row.items() if k != "state"}) for row in rows}
    if control is None:
        return QueueStatus(states, paused=False, changed_at=None, note=None)
    return QueueStatus(states, control.paused, control.changed_at, control.note)


def set_paused(engine: Engine, *, paused: bool, note: str | None = None) -> None:
    """Stop or resume dispatching. What is dispatched or running goes on."""
    with engine.begin() as connection:
        connection.execute(statement("operate_pause"), {"paused": paused, "note": note})
        connection.execute(WAKE_DISPATCHER)


def list_jobs(
    engine: Engine,
    *,
    states: Sequence[str] | None = None,
    kind: str | None = None,
    since: datetime | None = None,
    limit: int = 20,
) -> list[dict[str, Any]]:
    """Jobs, the newest first."""
    wanted = {"states": list(states) if states else None, "kind": kind, "since": since, "limit": limit}
    with engine.connect() as connection:
        return _dicts(connection.execute(statement("operate_jobs"), wanted).all())


def list_artifacts(
    engine: Engine,
    *,
    job_id: UUID | None = None,
    kind: str | None = None,
    verdict: str | None = None,
    since: datetime | None = None,
    limit: int | None = 20,
) -> list[dict[str, Any]]:
    """Artifacts, accepted and rejected, the newest first."""
    wanted = {"job_id": job_id, "kind": kind, "verdict": verdict, "since": since, "limit": limit}
    with engine.connect() as connection:
        return _dicts(connection.execute(statement("operate_artifacts"), wanted).all())


def stream_artifacts(
    engine: Engine, *, kind: str | None = None, verdict: str | None = None, since: datetime | None = None
) -> Iterator[dict[str, Any]]:
    """Every such artifact, the newest first, without holding them all in memory."""
    wanted = {"job_id": None, "kind": kind, "verdict": verdict, "since": since, "limit": None}
    with engine.connect().execution_options(yield_per=500) as connection:
        for row in connection.execute(statement("operate_artifacts"), wanted):
            yield dict(row._mapping)


def show_job(engine: Engine, job_id: UUID) -> dict[str, Any]:
    """A job with its request, attempts, artifacts and events. Raises `UnknownJobError`."""
    with engine.connect() as connection:
        job = connection.execute(select(Job.__table__).where(Job.id == job_id)).one_or_none()
        if job is None:
            raise UnknownJobError(job_id)
        request = connection.scalar(select(JobRequest.request).where(JobRequest.job_id == job_id))
        attempts = select(Attempt.__table__).where(Attempt.job_id == job_id).order_by(Attempt.attempt)
        events = select(JobEvent.__table__).where(JobEvent.job_id == job_id).order_by(JobEvent.at)
        parts = {
            "request": request,
            "attempts": _dicts(connection.execute(attempts).all()),
            "events": _dicts(connection.execute(events).all()),
        }
    return {**job._mapping, **parts, "artifacts": list_artifacts(engine, job_id=job_id, limit=None)}


def select_jobs(
    engine: Engine, states: Sequence[str], *, kind: str | None = None, reason: str | None = None
) -> list[UUID]:
    """Ids of the jobs in these states, the oldest first."""
    wanted = {"states": list(states), "kind": kind, "reason": reason}
    with engine.connect() as connection:
        return list(connection.scalars(statement("operate_select"), wanted))


def redrive(
    engine: Engine, ids: Sequence[UUID], *, deadline: datetime | None = None, note: str | None = None
) -> set[UUID]:
    """Queue dead, cancelled and expired jobs again; returns those that were. Failures start from nothing.

    History stays, and takes up the `note`. A deadline that has passed is dropped, unless a new one is given.
    """
    wanted = {"ids": list(ids), "deadline": deadline, "detail": note}
    with engine.begin() as connection:
        redriven = set(connection.scalars(statement("operate_redrive"), wanted))
        if redriven:
            connection.execute(WAKE_DISPATCHER)
    return redriven


def cancel(engine: Engine, ids: Sequence[UUID]) -> set[UUID]:
    """Cancel jobs: at once those that wait, within a heartbeat those that run. Returns those that had not ended."""
    with engine.begin() as connection:
        return set(connection.scalars(statement("job_cancel"), {"ids": list(ids)}))


def states_of(engine: Engine, ids: Sequence[UUID]) -> dict[UUID, str]:
    """The states of these jobs; an id that is not there is not in the answer."""
    with engine.connect() as connection:
        rows = connection.execute(statement("operate_states"), {"ids": list(ids)})
        return {row.id: row.state for row in rows}


def _dicts(rows: Sequence[Row[Any]]) -> list[dict[str, Any]]:
    return [dict(row._mapping) for row in rows]
