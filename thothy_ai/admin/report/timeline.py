"""A window's figures over time, by kind and by use of the devices.

They are read in the snapshot of the drain report, so that both agree. Postgres sums into bins and computes percentiles,
so that it returns no rows of single jobs or attempts. The usage of an attempt counts at its end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, Engine, Row

from thothy_ai.admin.report.bill import Prices
from thothy_ai.admin.report.drain_report import HOUR, DrainReport, read_report, snapshot
from thothy_ai.db.statements import statement
from thothy_ai.db.states import JobState, Outcome

MAX_BINS: Final = 60
STEPS: Final = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)  # seconds
ACCEPTED, REJECTED, UNSUCCESSFUL, LOST, INTERACTIVE, IDLE = (
    "accepted output",
    "rejected output",
    "failed, cancelled or expired",
    "lost or released",
    "requests over HTTP",
    "idle while resident",
)
USES: Final = {
    Outcome.SUCCEEDED: ACCEPTED,
    Outcome.REJECTED: REJECTED,
    Outcome.FAILED: UNSUCCESSFUL,
    Outcome.CANCELLED: UNSUCCESSFUL,
    Outcome.EXPIRED: UNSUCCESSFUL,
    Outcome.LOST: LOST,
    Outcome.RELEASED: LOST,
}


class Percentiles(NamedTuple):
    """Percentiles of durations, in seconds."""

    number: int
    p50: float
    p90: float
    p99: float


@dataclass(slots=True)
class Bin:
    """Jobs and attempts that ended between `start` and `end`, and the residency between them."""

    start: datetime
    end: datetime
    jobs: dict[JobState, int] = field(default_factory=dict)
    to_edit: int = 0  # succeeded jobs with only a draft
    computed_tokens: int = 0  # prompt tokens that were not in the prefix cache
    cached_tokens: int = 0
    output_tokens: int = 0
    resident_seconds: float = 0.0  # device-seconds
    waits: Percentiles | None = None  # of jobs whose first attempt ended
    runs: Percentiles | None = None

    @property
    def jobs_per_compute_hour(self) -> float | None:
        """Succeeded jobs with an artifact per hour of residency; None if no engine was resident."""
        hours = self.resident_seconds / HOUR
        return (self.jobs.get(JobState.SUCCEEDED, 0) - self.to_edit) / hours if hours else None


@dataclass(frozen=True, slots=True)
class Timeline:
    """A window in bins of equal width, except for the first and the last, which the window can cut."""

    bins: Sequence[Bin]
    waits: Mapping[str | None, Percentiles]  # by kind; None: all kinds
    runs: Mapping[str | None, Percentiles]
    device_seconds: Mapping[str, float]  # by use


def report_with_timeline(
    engine: Engine, since: datetime, until: datetime | None = None, prices: Prices | None = None
) -> tuple[DrainReport, Timeline]:
    """The drain report of [since, until) and its timeline, in one snapshot."""
    with snapshot(engine) as connection:
        report = read_report(connection, since, until, prices)
        return report, _read(connection, report)


def bin_step(span: timedelta) -> int:
    """The smallest even width in seconds that cuts `span` into at most MAX_BINS bins."""
    fitting = (step for step in STEPS if span.total_seconds() <= step * (MAX_BINS - 1))
    days = -(-span // timedelta(days=MAX_BINS - 1))
    return next(fitting, days * STEPS[-1])


def empty_bins(since: datetime, until: datetime) -> tuple[datetime, int, list[Bin]]:
    """Bins at even local times: the uncut start of the first bin, the width in seconds, and the bins."""
    step = bin_step(until - since)
    offset = since.astimezone().utcoffset() or timedelta()
    first = (since.timestamp() + offset.total_seconds()) // step * step - offset.total_seconds()
    origin = datetime.fromtimestamp(first, UTC)
    bins, width = [], timedelta(seconds=step)
    start = origin
    while start < until:
        bins.append(Bin(max(start, since), min(start + width, until)))
        start += width
    return origin, step, bins


def _read(connection: Connection, report: DrainReport) -> Timeline:
    origin, step, bins = empty_bins(report.since, report.until)
    window = {"since": report.since, "until": report.until}

    def rows(name: str, **more: object) -> list[Row[Any]]:
        return list(connection.execute(statement(f"admin/{name}"), {**window, **more}))

    for row in rows("timeline_jobs", origin=origin, step=step):
        bins[row.bin].jobs[JobState(row.state)] = row.jobs
        bins[row.bin].to_edit += row.to_edit
    used = dict.fromkeys((ACCEPTED, REJECTED, UNSUCCESSFUL, LOST), 0.0)
    for row in rows("timeline_attempts", origin=origin, step=step):
        of = bins[row.bin]
        of.computed_tokens += row.prompt_tokens - row.cached_tokens
        of.cached_tokens += row.cached_tokens
        of.output_tokens += row.output_tokens
        used[USES[Outcome(row.outcome)]] += row.compute_seconds
    for row in rows("timeline_times", origin=origin, step=step):
        bins[row.bin].waits = Percentiles(row.waited, *row.waits) if row.waited else None
        bins[row.bin].runs = Percentiles(row.ran, *row.runs)
    for session in rows("report_sessions"):
        for of in bins:
            shared = min(of.end, session.until_at) - max(of.start, session.since_at)
            of.resident_seconds += max(shared.total_seconds(), 0.0) * max(session.gpus, 1)
    used[UNSUCCESSFUL] += max(report.total.busy_seconds - sum(used.values()), 0.0)  # from deleted attempts
    used[INTERACTIVE] = report.bill.total.usage.interactive_seconds
    used[IDLE] = max(report.total.resident_seconds - sum(used.values()), 0.0)
    return Timeline(bins, _percentiles(rows("timeline_waits")), _percentiles(rows("timeline_runs")), used)


def _percentiles(rows: Sequence[Row[Any]]) -> dict[str | None, Percentiles]:
    return {row.kind: Percentiles(row.number, *row.seconds) for row in rows}
