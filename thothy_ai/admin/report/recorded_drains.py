"""Periods in which the queue was not empty, as the reaper recorded them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Engine

from thothy_ai.db.statements import statement

HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class RecordedDrain:
    """A period from the moment a job was due until the queue was empty. Percentiles are in seconds."""

    started_at: datetime
    ended_at: datetime
    emptied: bool  # False: it was cut after a day, and the next one continues it
    succeeded: int
    dead: int
    cancelled: int
    expired: int
    attempts: int
    with_output: int  # jobs
    peak_depth: int  # most jobs open and due at once
    wait_p50: float | None
    wait_p95: float | None
    wait_p99: float | None
    run_p50: float | None
    run_p95: float | None
    run_p99: float | None
    resident_seconds: float  # device-seconds
    busy_seconds: float
    useful_seconds: float

    @property
    def jobs(self) -> int:
        return self.succeeded + self.dead + self.cancelled + self.expired

    @property
    def seconds(self) -> float:
        return (self.ended_at - self.started_at).total_seconds()

    @property
    def artifact_yield(self) -> float | None:
        """Jobs with an accepted artifact over jobs that produced output."""
        return self.succeeded / self.with_output if self.with_output else None

    @property
    def jobs_per_compute_hour(self) -> float | None:
        """Succeeded jobs per hour of residency."""
        return self.succeeded * HOUR / self.resident_seconds if self.resident_seconds else None

    def to_json(self) -> dict[str, Any]:
        """Plain values under stable keys, described in docs/report.md."""
        times = {name: getattr(self, name).astimezone(UTC).isoformat() for name in ("started_at", "ended_at")}
        rates = {
            "seconds": self.seconds,
            "jobs": self.jobs,
            "artifact_yield": self.artifact_yield,
            "jobs_per_compute_hour": self.jobs_per_compute_hour,
        }
        return asdict(self) | times | rates


def list_drains(engine: Engine, since: datetime, until: datetime) -> list[RecordedDrain]:
    """The drains that overlap [since, until), the oldest first."""
    with engine.connect() as connection:
        rows = connection.execute(statement("admin/list_drains"), {"since": since, "until": until}).mappings()
        return [RecordedDrain(**{name: row[name] for name in RecordedDrain.__slots__}) for row in rows]
