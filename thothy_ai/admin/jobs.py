"""What operators do with jobs: list, show one in full, queue again, cancel.

Every call is one transaction on the given engine, and returns plain values.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Engine, Row, select

from thothy_ai.admin.artifacts import list_artifacts
from thothy_ai.db.models import Attempt, Job, JobEvent, JobRequest
from thothy_ai.db.statements import statement
from thothy_ai.errors import UnknownJobError
from thothy_ai.queue.control import WAKE_DISPATCHER


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
        return _dicts(connection.execute(statement("admin/list_jobs"), wanted).all())


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
        return list(connection.scalars(statement("admin/select_jobs"), wanted))


def redrive(
    engine: Engine, ids: Sequence[UUID], *, deadline: datetime | None = None, note: str | None = None
) -> set[UUID]:
    """Queue dead, cancelled and expired jobs again; returns those that were. Failures start at 0.

    History stays, and records the `note`. A deadline that has passed is dropped, unless a new one is given.
    """
    wanted = {"ids": list(ids), "deadline": deadline, "detail": note}
    with engine.begin() as connection:
        redriven = set(connection.scalars(statement("admin/redrive"), wanted))
        if redriven:
            connection.execute(WAKE_DISPATCHER)
    return redriven


def cancel(engine: Engine, ids: Sequence[UUID]) -> set[UUID]:
    """Cancel jobs: waiting ones at once, running ones within a heartbeat. Returns those that had not ended."""
    with engine.begin() as connection:
        return set(connection.scalars(statement("queue/cancel"), {"ids": list(ids)}))


def states_of(engine: Engine, ids: Sequence[UUID]) -> dict[UUID, str]:
    """The states of these jobs; unknown ids are left out."""
    with engine.connect() as connection:
        rows = connection.execute(statement("admin/job_states"), {"ids": list(ids)})
        return {row.id: row.state for row in rows}


def _dicts(rows: Sequence[Row[Any]]) -> list[dict[str, Any]]:
    return [dict(row._mapping) for row in rows]
