"""Reads the periods in which the queue was not empty, as the reaper recorded them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Engine

from thothy_ai.admin.report.yields import Yields
from thothy_ai.db.statements import statement

HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class RecordedDrain(Yields):
    """A period from the moment a job was due until the queue was empty. Percentiles are in seconds."""

    started_at: datetime
    ended_at: datetime
    emptied: bool  # False: the record was cut after a day, and the next one continues it
    succeeded: int
    dead: int
    cancelled: int
    expired: int
    attempts: int
    with_output: int  # jobs
    with_artifact: int  # jobs with an artifact that no gate rejects
    clean: int  # jobs with an artifact in which nothing was found at all
    peak_depth: int  # the most jobs open and due at once
    wait_p50: float | None
    wait_p95: float | None
    wait_p99: float | None
    run_p50: float | None
    run_p95: float | None
    run_p99: float | None
    resident_seconds: float  # device-seconds
    busy_seconds: float
    useful_seconds: float
    draft_seconds: float  # the part of the busy seconds for drafts that waited for a person

    @property
    def wasted_seconds(self) -> float:
        """Busy seconds that led to neither an accepted artifact nor the draft that is kept for a person."""
        return max(self.busy_seconds - self.useful_seconds - self.draft_seconds, 0.0)

    @property
    def jobs(self) -> int:
        return self.succeeded + self.dead + self.cancelled + self.expired

    @property
    def seconds(self) -> float:
        return (self.ended_at - self.started_at).total_seconds()

    @property
    def to_edit(self) -> int:
        """Succeeded jobs that had only a draft when the drain was recorded."""
        return max(self.succeeded - self.with_artifact, 0)

    @property
    def jobs_per_compute_hour(self) -> float | None:
        """Jobs with an artifact per hour of residency."""
        return self.with_artifact * HOUR / self.resident_seconds if self.resident_seconds else None

    def to_json(self) -> dict[str, Any]:
        """Plain values under stable keys, described in docs/report.md."""
        times = {name: getattr(self, name).astimezone(UTC).isoformat() for name in ("started_at", "ended_at")}
        rates = {
            "seconds": self.seconds,
            "jobs": self.jobs,
            "to_edit": self.to_edit,
            "wasted_seconds": self.wasted_seconds,
            "form_yield": self.form_yield,
            "clean_yield": self.clean_yield,
            "jobs_per_compute_hour": self.jobs_per_compute_hour,
        }
        return asdict(self) | times | rates


def list_drains(engine: Engine, since: datetime, until: datetime) -> list[RecordedDrain]:
    """The drains that overlap [since, until), the oldest first."""
    with engine.connect() as connection:
        rows = connection.execute(statement("admin/list_drains"), {"since": since, "until": until}).mappings()
        return [RecordedDrain(**{name: row[name] for name in RecordedDrain.__slots__}) for row in rows]
