"""Jobs, for operators: list them, show one in full with its cost, queue them again, change or cancel them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import Engine, Row

from thothy_ai.admin.artifacts import list_artifacts
from thothy_ai.admin.filters import ALL_JOBS, ANY_END, JobFilter
from thothy_ai.db.statements import statement
from thothy_ai.db.states import JobState, Outcome
from thothy_ai.errors import UnknownJobError
from thothy_ai.queue.changes import Change
from thothy_ai.queue.control import WAKE_DISPATCHER
from thothy_ai.queue.seeds import attempt_seed

BATCH = 1000  # jobs per transaction
HOUR = 3600.0
LOOK_SECONDS = 0.05  # before a search for rare jobs starts no further window, which would take twice as long
CLOCKS = timedelta(hours=1)  # how far a producer's clock, which makes ids, can differ from the database's
ON_ENGINES = {JobState.DISPATCHED, JobState.RUNNING}  # always few jobs
FIRST_WINDOW = 5_000  # jobs searched before the first look at the clock; each further window is twice as large


@dataclass(frozen=True, slots=True)
class JobCost:
    """The device-seconds of a job's attempts: their share of an engine's busy seconds, times its number of devices.

    Idle residency of an engine is in the drain report, not in the cost of a job.
    """

    seconds: float = 0.0
    useful: float = 0.0  # the part for the attempt that succeeded
    on_gpu: bool = False
    declared: bool = False  # whether any attempt ran on a server over HTTP, whose seconds are not measured

    @classmethod
    def of(cls, attempts: Sequence[Mapping[str, Any]]) -> JobCost:
        """The cost of attempts, which have `outcome`, `device_seconds`, `declared` and `gpus` (None: unknown)."""
        useful = sum(each["device_seconds"] for each in attempts if each["outcome"] == Outcome.SUCCEEDED)
        total = sum(each["device_seconds"] for each in attempts)
        billed = [each["gpus"] for each in attempts if each["device_seconds"]]
        declared = any(each["declared"] for each in attempts)
        return cls(total, useful, bool(billed) and all(billed), declared)

    @property
    def unit(self) -> str:
        return "GPU-second" if self.on_gpu else "compute-second"

    def price(self, per_hour: float) -> float:
        """The price of all attempts. `per_hour` is the price of one device."""
        return self.seconds / HOUR * per_hour

    def to_json(self) -> dict[str, Any]:
        return {"compute_seconds": self.seconds, "useful_seconds": self.useful, "declared": self.declared}


@dataclass(frozen=True, slots=True)
class OpenJob:
    id: UUID
    kind: str
    state: str


@dataclass(frozen=True, slots=True)
class EndedJob:
    id: UUID
    kind: str
    reason: str | None


@dataclass(frozen=True, slots=True)
class JobList:
    """The jobs that match, the newest first. `since` and `until` bound the time of enqueueing."""

    wanted: JobFilter = ALL_JOBS
    since: datetime | None = None
    until: datetime | None = None

    def page(
        self, engine: Engine, *, above: UUID | None = None, after: UUID | None = None, limit: int = 20
    ) -> list[dict[str, Any]]:
        """A part of the list, from the job that follows `after`, with only jobs newer than `above`."""
        with engine.connect() as connection:
            return _dicts(connection.execute(statement("admin/list_jobs"), self._bounds(above, after, limit)).all())

    def look(
        self, engine: Engine, *, after: UUID | None = None, limit: int, seconds: float = LOOK_SECONDS
    ) -> tuple[list[dict[str, Any]], UUID | None]:
        """The part of a page found within about `seconds`, and the id after which to search on; None at the end.

        This bounds the database's time, however rare the matching jobs are.
        """
        found: list[dict[str, Any]] = []
        after, last = self._newest(after), self._oldest
        until, window = time.monotonic() + seconds, FIRST_WINDOW
        with engine.connect() as connection:
            if self._is_indexed:
                found = _dicts(connection.execute(statement("admin/list_jobs"), self._bounds(None, after, limit)).all())
                return found, found[-1]["id"] if len(found) == limit else None
            while True:
                edge = connection.scalar(statement("admin/job_before"), {"after": after, "jobs": window})
                if edge is None or (last is not None and edge < last):
                    edge = last
                bounds = self._bounds(edge, after, limit - len(found))
                found += _dicts(connection.execute(statement("admin/list_jobs"), bounds).all())
                if len(found) >= limit:
                    return found, found[-1]["id"]
                if edge == last:
                    return found, None
                after = UUID(int=edge.int + 1)  # so that the next window includes the edge itself
                if time.monotonic() > until:
                    return found, after
                window *= 2

    @property
    def _is_indexed(self) -> bool:
        """Whether an index finds the matching jobs, which are few."""
        wanted, key = self.wanted, self.wanted.key
        by_key = key is not None and not key.endswith(ANY_END)
        on_engines = bool(wanted.states) and ON_ENGINES.issuperset(wanted.states)
        return by_key or on_engines or wanted.parent is not None or wanted.batch_id is not None

    # Ids begin with their time of creation, so jobs newer or older than the time bounds need not be searched.

    def _newest(self, after: UUID | None) -> UUID | None:
        ends = [_id_at(end + CLOCKS) for end in (self.until, self._batch_at) if end is not None]
        return min([*ends, *([after] if after else [])], default=None)

    @property
    def _oldest(self) -> UUID | None:
        starts = (start for start in (self.since, self._batch_at) if start is not None)
        return max((_id_at(start - CLOCKS) for start in starts), default=None)

    @property
    def _batch_at(self) -> datetime | None:
        batch = self.wanted.batch
        return None if batch is None else datetime.fromtimestamp((batch.int >> 80) / 1000, UTC)

    def _bounds(self, above: UUID | None, after: UUID | None, limit: int) -> dict[str, Any]:
        times = {"since": self.since, "until": self.until}
        return {**self.wanted.parameters(), **times, "above": above, "after": after, "limit": limit}


def _id_at(moment: datetime) -> UUID:
    """The smallest id that can be made at this moment."""
    return UUID(int=max(0, round(moment.timestamp() * 1000)) << 80)


def list_jobs(
    engine: Engine,
    wanted: JobFilter = ALL_JOBS,
    *,
    since: datetime | None = None,
    until: datetime | None = None,
    after: UUID | None = None,
    limit: int = 20,
) -> list[dict[str, Any]]:
    """The jobs that match, the newest first, from the job that follows `after`."""
    return JobList(wanted, since, until).page(engine, after=after, limit=limit)


def jobs_of(engine: Engine, ids: Sequence[UUID]) -> list[dict[str, Any]]:
    """These jobs in the form of a list; unknown ids are left out."""
    with engine.connect() as connection:
        return _dicts(connection.execute(statement("admin/jobs_of"), {"ids": list(ids)}).all())


def show_job(engine: Engine, job_id: UUID) -> dict[str, Any]:
    """A job with its request, attempts, artifacts, findings, events, follow-ups and cost. Raises `UnknownJobError`."""
    with engine.connect() as connection:
        job = connection.execute(statement("admin/job"), {"job_id": job_id}).one_or_none()
        if job is None:
            raise UnknownJobError(job_id)
        attempts = _dicts(connection.execute(statement("admin/job_attempts"), {"job_id": job_id}).all())
        found = connection.execute(statement("admin/job_findings"), {"job_id": job_id}).all()
        parts = {
            "findings": [
                {"attempt": row.attempt, **row.finding, "text": _said(row.finding, row.body)} for row in found
            ],
            "request": connection.scalar(statement("admin/job_request"), {"job_id": job_id}),
            "attempts": [{**each, "seed": attempt_seed(job_id, each["attempt"])} for each in attempts],
            "events": _dicts(connection.execute(statement("admin/job_events"), {"job_id": job_id}).all()),
            "follow_ups": _dicts(connection.execute(statement("admin/job_children"), {"job_id": job_id}).all()),
            "cost": JobCost.of(attempts),
        }
    return {**job._mapping, **parts, "artifacts": list_artifacts(engine, job_id=job_id, limit=None)}


def _said(finding: Mapping[str, Any], body: object) -> str | None:
    """The characters of the artifact's field that a finding is about."""
    from thothy_ai.producer.decisions import leaves  # noqa: PLC0415  loads the checks, which lists do not need

    value = dict(leaves(body or {})).get(finding.get("part") or "")
    return value[finding["start"] : finding["end"]] if isinstance(value, str) else None


def open_jobs(
    engine: Engine, wanted: JobFilter, *, since: datetime | None = None, until: datetime | None = None
) -> list[OpenJob]:
    """The jobs that match and have not ended, the oldest first."""
    parameters = {**wanted.parameters(), "since": since, "until": until}
    with engine.connect() as connection:
        return [OpenJob(*row) for row in connection.execute(statement("admin/open_jobs"), parameters)]


def ended_jobs(engine: Engine, state: str, *, kind: str | None = None, reason: str | None = None) -> list[EndedJob]:
    """The jobs in this final state, the oldest first."""
    wanted = {"state": state, "kind": kind, "reason": reason}
    with engine.connect() as connection:
        return [EndedJob(*row) for row in connection.execute(statement("admin/ended_jobs"), wanted)]


def redrive(
    engine: Engine, ids: Sequence[UUID], *, deadline: datetime | None = None, note: str | None = None
) -> set[UUID]:
    """Queue dead, cancelled and expired jobs again, in batches; returns the ids of queued jobs. Failures restart at 0.

    The history is kept, and records the `note`. A deadline that has passed is dropped unless a new one is given.
    """
    redriven: set[UUID] = set()
    for start in range(0, len(ids), BATCH):
        wanted = {"ids": list(ids[start : start + BATCH]), "deadline": deadline, "detail": note}
        with engine.begin() as connection:
            redriven.update(connection.scalars(statement("admin/redrive"), wanted))
            connection.execute(WAKE_DISPATCHER)
    return redriven


def cancel(engine: Engine, ids: Sequence[UUID], *, batch: int = BATCH) -> dict[UUID, str]:
    """Cancel jobs: waiting jobs at once, running jobs within a heartbeat.

    Returns the states of the jobs that had not ended: cancelled, or still running. Each batch is one transaction.
    """
    states: dict[UUID, str] = {}
    for start in range(0, len(ids), batch):
        with engine.begin() as connection:
            wanted = {"ids": list(ids[start : start + batch]), "tenant": None}
            rows = connection.execute(statement("queue/cancel"), wanted)
            states |= {row.id: row.state for row in rows}
    return states


def change(engine: Engine, ids: Sequence[UUID], wanted: Change) -> dict[UUID, bool]:
    """Change when waiting jobs are to run, in batches.

    Returns the jobs that waited, and whether each was changed. A change is refused if the job could then not start
    before its deadline.
    """
    changed: dict[UUID, bool] = {}
    for start in range(0, len(ids), BATCH):
        with engine.begin() as connection:
            given = {"ids": list(ids[start : start + BATCH]), "tenant": None, **wanted.parameters()}
            rows = connection.execute(statement("queue/change"), given)
            changed |= {row.id: row.changed for row in rows}
    return changed


def standing_of(engine: Engine, ids: Sequence[UUID]) -> dict[str, dict[str, Any]]:
    """The states and priorities of these jobs, by id in text; unknown ids are left out."""
    with engine.connect() as connection:
        rows = connection.execute(statement("admin/job_states"), {"ids": list(ids)})
        return {str(row.id): {"state": row.state, "priority": row.priority} for row in rows}


def states_of(engine: Engine, ids: Sequence[UUID]) -> dict[UUID, str]:
    """The states of these jobs; unknown ids are left out."""
    with engine.connect() as connection:
        rows = connection.execute(statement("admin/job_states"), {"ids": list(ids)})
        return {row.id: row.state for row in rows}


def _dicts(rows: Sequence[Row[Any]]) -> list[dict[str, Any]]:
    return [dict(row._mapping) for row in rows]
