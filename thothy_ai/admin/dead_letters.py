"""Dead letters: jobs that ended without an artifact, and run again only if an operator redrives them.

Changes are made in batches, one transaction each, so that a night's worth of dead jobs blocks no other work, and an
interrupted command has completed whole batches.
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

BATCH = 1000  # jobs per transaction


@dataclass(frozen=True, slots=True)
class Selection:
    """Dead jobs that match every given criterion; `since` and `until` bound the time of death."""

    ids: Sequence[UUID] = ()
    kinds: Sequence[str] = ()
    reasons: Sequence[str] = ()
    since: datetime | None = None
    until: datetime | None = None
    tenant: str | None = None

    def parameters(self) -> dict[str, Any]:
        return {
            "ids": list(self.ids) or None,
            "kinds": list(self.kinds) or None,
            "reasons": list(self.reasons) or None,
            "since": self.since,
            "until": self.until,
            "tenant": self.tenant,
        }


EVERYTHING = Selection()


@dataclass(frozen=True, slots=True)
class DeadGroup:
    kind: str
    reason: str
    jobs: int
    first_died: datetime
    last_died: datetime


def until_now(engine: Engine, selection: Selection) -> Selection:
    """Exclude jobs that die from now on, by the database's clock, so that a change affects only counted jobs."""
    if selection.until is not None:
        return selection
    with engine.connect() as connection:
        return replace(selection, until=connection.scalars(statement("admin/now")).one())


def groups(engine: Engine, selection: Selection = EVERYTHING) -> list[DeadGroup]:
    """The selected jobs by kind and reason, the largest group first."""
    with engine.connect() as connection:
        rows = connection.execute(statement("admin/dead_groups"), selection.parameters())
        return [DeadGroup(*row) for row in rows]


def list_dead(engine: Engine, selection: Selection = EVERYTHING, *, limit: int = 20) -> list[dict[str, Any]]:
    """The selected jobs, the most recent deaths first."""
    with engine.connect() as connection:
        rows = connection.execute(statement("admin/dead_list"), selection.parameters() | {"limit": limit})
        return [dict(row._mapping) for row in rows]


def quarantined(engine: Engine, tenant: str | None = None, *, limit: int = 20) -> list[dict[str, Any]]:
    """Open jobs that were on an engine when it died, the most charged first. One more death can make them dead."""
    with engine.connect() as connection:
        rows = connection.execute(statement("admin/quarantined"), {"tenant": tenant, "limit": limit})
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
    """Queue the selected jobs again; returns their number. Their history is kept, and records `by` and `why`.

    Failures restart at 0, attempt numbers continue. A deadline that has passed is dropped unless a new one is given.
    A job that dies again meanwhile is not redriven twice.
    """
    note = {"deadline": deadline, "detail": f"by {by}" + (f": {why}" if why else "")}

    def queue_again(connection: Connection, ids: list[UUID]) -> int:
        redriven = len(connection.execute(statement("admin/redrive"), note | {"ids": ids}).all())
        connection.execute(WAKE_DISPATCHER)
        return redriven

    return _in_batches(engine, selection, queue_again, batch)


def purge(engine: Engine, selection: Selection, *, batch: int = BATCH) -> int:
    """Delete the selected jobs with requests, attempts, artifacts and events; returns their number.

    Their idempotency keys can be used again. `usage_by_hour` keeps their usage.
    """

    def delete(connection: Connection, ids: list[UUID]) -> int:
        return len(connection.execute(statement("admin/dead_purge"), {"ids": ids}).all())

    return _in_batches(engine, selection, delete, batch)


def _in_batches(
    engine: Engine, selection: Selection, change: Callable[[Connection, list[UUID]], int], batch: int
) -> int:
    wanted = until_now(engine, selection).parameters() | {"limit": batch}
    changed = 0
    while True:
        with engine.begin() as connection:
            ids = list(connection.scalars(statement("admin/dead_take"), wanted))
            if not ids:
                return changed
            changed += change(connection, ids)
