"""Dead letters: the jobs that ended without an artifact and will not be tried again, until an operator says so.

Looking, queueing again with a fresh allowance of failures, and deleting for good, by reason, kind and time. Changes are
made in batches, a transaction each: a night's worth of dead jobs locks nobody out, and an interrupted command has done
whole batches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Engine

from thothy_ai.admin.jobs import show_job
from thothy_ai.db.statements import statement
from thothy_ai.db.states import JobState
from thothy_ai.errors import NotDeadError
from thothy_ai.queue.control import WAKE_DISPATCHER

BATCH = 1000  # jobs a transaction


@dataclass(frozen=True, slots=True)
class Selection:
    """Which dead jobs: those that fit everything that is given. `since` and `until` bound the time of death.

    Nothing given means all of them.
    """

    ids: Sequence[UUID] = ()
    kinds: Sequence[str] = ()
    reasons: Sequence[str] = ()
    since: datetime | None = None
    until: datetime | None = None

    def parameters(self) -> dict[str, Any]:
        """As the statements take them."""
        return {
            "ids": _listed(self.ids),
            "kinds": _listed(self.kinds),
            "reasons": _listed(self.reasons),
            "since": self.since,
            "until": self.until,
        }


EVERYTHING = Selection()


@dataclass(frozen=True, slots=True)
class Group:
    """Dead jobs of one kind that died for one reason."""

    kind: str
    reason: str
    jobs: int
    first_died: datetime
    last_died: datetime


def until_now(engine: Engine, selection: Selection) -> Selection:
    """The same, without what dies from now on, by the database's clock: what was counted is what is changed."""
    if selection.until is not None:
        return selection
    with engine.connect() as connection:
        return replace(selection, until=connection.scalars(statement("report_now")).one())


def groups(engine: Engine, selection: Selection = EVERYTHING) -> list[Group]:
    """How many such jobs are dead, by kind and reason; the largest group first."""
    with engine.connect() as connection:
        rows = connection.execute(statement("dead_groups"), selection.parameters())
        return [Group(*row) for row in rows]


def list_dead(engine: Engine, selection: Selection = EVERYTHING, *, limit: int = 20) -> list[dict[str, Any]]:
    """Such jobs, those that died last first."""
    with engine.connect() as connection:
        rows = connection.execute(statement("dead_list"), selection.parameters() | {"limit": limit})
        return [dict(row._mapping) for row in rows]


def show(engine: Engine, job_id: UUID) -> dict[str, Any]:
    """A dead job with its request, attempts, artifacts and events. Raises `UnknownJobError` or `NotDeadError`."""
    job = show_job(engine, job_id)
    if job["state"] != JobState.DEAD:
        raise NotDeadError(job_id, job["state"])
    return job


def redrive(
    engine: Engine,
    selection: Selection,
    *,
    by: str,
    why: str | None = None,
    deadline: datetime | None = None,
    batch: int = BATCH,
) -> int:
    """Queue such jobs again; returns how many. Their history stays, and says who did this (`by`) and why.

    Failures start from nothing; attempt numbers go on. A deadline that passed is dropped, unless there is a new one.
    A job that dies again meanwhile is not taken twice.
    """
    note = {"deadline": deadline, "detail": f"by {by}" + (f": {why}" if why else "")}

    def queue_again(connection: Connection, ids: list[UUID]) -> int:
        redriven = len(connection.execute(statement("operate_redrive"), note | {"ids": ids}).all())
        connection.execute(WAKE_DISPATCHER)
        return redriven

    return _in_batches(engine, selection, queue_again, batch)


def purge(engine: Engine, selection: Selection, *, batch: int = BATCH) -> int:
    """Delete such jobs with requests, attempts, artifacts and events, for good; returns how many.

    Their idempotency keys become free. `usage_hourly` keeps what they cost.
    """

    def delete(connection: Connection, ids: list[UUID]) -> int:
        return len(connection.execute(statement("dead_purge"), {"ids": ids}).all())

    return _in_batches(engine, selection, delete, batch)


def _in_batches(
    engine: Engine, selection: Selection, change: Callable[[Connection, list[UUID]], int], batch: int
) -> int:
    wanted = until_now(engine, selection).parameters() | {"limit": batch}
    changed = 0
    while True:
        with engine.begin() as connection:
            ids = list(connection.scalars(statement("dead_take"), wanted))
            if not ids:
                return changed
            changed += change(connection, ids)


def _listed(values: Sequence[Any]) -> list[Any] | None:
    return list(values) or None
