"""The drain report: what was finished in a window of time, what it cost, and how much of it can be published.

Everything is read from Postgres in one snapshot, so that the figures agree with each other and survive restarts. Usage
is read from the bill, which outlives attempts. Reasons come from attempts; deleted attempts have the outcome *deleted*.

- *jobs per compute-hour*: succeeded jobs, except those with an artifact that neither gates nor a person accepted yet.
- *compute-hour*: one hour of one device on which an engine is resident, busy or idle (`engine_session`). If every
  device is a GPU, this is a GPU-hour. A kind's share of the residency is its share of the busy seconds.
- *wasted*: busy seconds of all attempts that did not end with an accepted artifact: rejected outputs, failures, and
  attempts that were lost, released, cancelled or expired. The draft that is kept for a person to edit is not wasted
  unless the person rejects it.
- *saved tokens*: the rest of the token budgets of calls that were stopped early, in a loop or in the wrong language.
- *drain time*: from the first enqueueing (or the window's start, if that is later) to the last finish in the window.
  If the window spans several drains, `recorded_drains` has the time of each.
- *failure rate*: dead and expired jobs, divided by dead, expired and succeeded jobs; cancelled jobs do not count.
- *form yield*, *clean yield*: see `yields.py`. *Approved per compute-hour*: jobs whose artifact a person approved, per
  hour of residency; None until somebody decides.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import UTC, datetime
from typing import Any, NamedTuple

from sqlalchemy import Connection, Engine, Row

from thothy_ai.admin.report.bill import Bill, Prices
from thothy_ai.admin.report.usage import BilledUsage, read_keys, read_usage
from thothy_ai.admin.report.yields import Yields
from thothy_ai.db.statements import statement
from thothy_ai.db.states import TERMINAL, JobState, Outcome
from thothy_ai.db.usage_fragments import INTERACTIVE

HOUR = 3600.0
DELETED = "deleted"  # the outcome of attempts that are only in the bill


class AttemptKey(NamedTuple):
    outcome: str
    reason: str | None

    @property
    def label(self) -> str:
        """`outcome: reason`, or the outcome alone."""
        return f"{self.outcome}: {self.reason}" if self.reason else self.outcome


@dataclass(frozen=True, slots=True)
class Session:
    """An engine that was resident in the window."""

    id: str
    model: str
    device: str
    gpus: int  # 0 on a CPU
    resident_seconds: float
    direct_seconds: float  # busy on requests outside the queue, since its start
    interactive_seconds: float  # the part of these on requests over HTTP, which is billed
    unattributed_seconds: float  # busy neither on such requests nor on attempts, since its start
    declared: bool = False  # its GPUs and seconds are not measured

    @property
    def device_seconds(self) -> float:
        """Seconds of residency, times the number of devices."""
        return self.resident_seconds * max(self.gpus, 1)


@dataclass(frozen=True, slots=True)
class Figures(Yields):
    """The figures of one kind, or of all kinds. A rate without a divisor is None."""

    jobs: Counter[str] = field(default_factory=Counter)  # by state; open states as of now
    later: int = 0  # open jobs that were never tried and are not due soon
    first_enqueued: datetime | None = None
    last_finished: datetime | None = None
    attempts: Counter[AttemptKey] = field(default_factory=Counter)
    rejections: Counter[str] = field(default_factory=Counter)  # outputs by reason
    with_output: int = 0
    with_artifact: int = 0
    clean: int = 0  # jobs with an artifact that has no findings
    to_edit: int = 0  # succeeded jobs with only a draft
    decided: int = 0  # jobs whose artifact a person approved or rejected
    approved: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    busy_seconds: float = 0.0  # device-seconds billed to attempts
    wasted: Mapping[AttemptKey, float] = field(default_factory=dict)  # busy seconds by the end of the wasted attempt
    draft_seconds: float = 0.0  # the part of the busy seconds for drafts that wait for a person
    redeemed_seconds: float = 0.0  # the part for drafts that a person approved, mostly after an edit
    verification_seconds: float = 0.0  # the part in which a model verified artifacts
    saved_tokens: int = 0
    resident_seconds: float = 0.0  # device-seconds of residency

    def __add__(self, other: Figures) -> Figures:
        sums: dict[str, Any] = {name: getattr(self, name) + getattr(other, name) for name in SUMS}
        keys = {**self.wasted, **other.wasted}
        return Figures(
            **sums,
            first_enqueued=min(filter(None, (self.first_enqueued, other.first_enqueued)), default=None),
            last_finished=max(filter(None, (self.last_finished, other.last_finished)), default=None),
            wasted={key: self.wasted.get(key, 0.0) + other.wasted.get(key, 0.0) for key in keys},
        )

    @property
    def succeeded(self) -> int:
        return self.jobs[JobState.SUCCEEDED]

    @property
    def failed(self) -> int:
        """Jobs that ended dead or expired."""
        return self.jobs[JobState.DEAD] + self.jobs[JobState.EXPIRED]

    @property
    def finished(self) -> int:
        """Jobs that ended, in any state."""
        return sum(self.jobs[state] for state in TERMINAL)

    @property
    def open(self) -> int:
        return self.jobs.total() - self.finished

    @property
    def still_due(self) -> int:
        """The number of open jobs that do not wait for a later time; 0 once the queue has drained."""
        return self.open - self.later

    @property
    def unsuccessful(self) -> Counter[AttemptKey]:
        return Counter({key: number for key, number in self.attempts.items() if key.outcome != Outcome.SUCCEEDED})

    @property
    def wasted_seconds(self) -> float:
        return sum(self.wasted.values())

    @property
    def verification_share(self) -> float | None:
        """Seconds of verification divided by the other busy seconds."""
        return _ratio(self.verification_seconds, self.busy_seconds - self.verification_seconds)

    @property
    def jobs_per_compute_hour(self) -> float | None:
        """Succeeded jobs with an artifact per hour of residency: the headline figure."""
        return _ratio(self.succeeded - self.to_edit, self.resident_seconds / HOUR)

    @property
    def jobs_per_busy_hour(self) -> float | None:
        """Succeeded jobs with an artifact per hour in which a device computed."""
        return _ratio(self.succeeded - self.to_edit, self.busy_seconds / HOUR)

    @property
    def drain_seconds(self) -> float | None:
        """From the first enqueueing to the last finish."""
        if self.first_enqueued is None or self.last_finished is None:
            return None
        return (self.last_finished - self.first_enqueued).total_seconds()

    @property
    def failure_rate(self) -> float | None:
        """Failed jobs divided by failed and succeeded jobs. Cancelled jobs count as neither."""
        return _ratio(self.failed, self.failed + self.succeeded)

    @property
    def approved_per_compute_hour(self) -> float | None:
        """Jobs whose artifact a person approved per hour of residency; None while nobody has decided."""
        return _ratio(self.approved, self.resident_seconds / HOUR) if self.decided else None

    @property
    def prefix_hit_rate(self) -> float | None:
        """Prompt tokens found in the prefix cache, divided by all prompt tokens."""
        return _ratio(self.cached_tokens, self.prompt_tokens)


SUMS = tuple(f.name for f in fields(Figures) if f.name not in {"first_enqueued", "last_finished", "wasted"})


@dataclass(frozen=True, slots=True)
class DrainReport:
    """A window's figures. `drains`: the recorded drains that overlap it; the latest may not be recorded yet."""

    since: datetime
    until: datetime
    sessions: tuple[Session, ...]
    total: Figures
    kinds: Mapping[str, Figures]
    bill: Bill = field(default_factory=Bill)
    drains: int = 0

    @property
    def direct_seconds(self) -> float:
        """Device-seconds of the engines for requests outside the queue."""
        return sum(session.direct_seconds * max(session.gpus, 1) for session in self.sessions)

    @property
    def interactive_seconds(self) -> float:
        """The part of the direct device-seconds that requests over HTTP used."""
        return sum(session.interactive_seconds * max(session.gpus, 1) for session in self.sessions)

    @property
    def unattributed_seconds(self) -> float:
        """Device-seconds of the engines that are not accounted for."""
        return sum(session.unattributed_seconds * max(session.gpus, 1) for session in self.sessions)

    @property
    def on_gpu(self) -> bool:
        """Whether all engines ran on GPUs, so that a compute-hour is a GPU-hour."""
        return bool(self.sessions) and all(session.gpus for session in self.sessions)

    @property
    def unit(self) -> str:
        """The name of an hour of residency: GPU-hour or compute-hour."""
        return "GPU-hour" if self.on_gpu else "compute-hour"

    def to_json(self) -> dict[str, Any]:
        """Plain values under stable keys, described in docs/report.md."""
        return {
            "since": _iso(self.since),
            "until": _iso(self.until),
            "unit": self.unit,
            "drains": self.drains,
            "engines": [asdict(session) for session in self.sessions],
            "total": self._figures(self.total),
            "kinds": {kind: self._figures(self.kinds[kind]) for kind in sorted(self.kinds)},
            "bill": self.bill.to_json(),
        }

    def _figures(self, figures: Figures) -> dict[str, Any]:
        per_hour = figures.jobs_per_compute_hour
        return {
            "jobs": {state.value: figures.jobs[state] for state in JobState},
            "jobs_per_gpu_hour": per_hour if self.on_gpu else None,
            "jobs_per_compute_hour": per_hour,
            "jobs_per_busy_hour": figures.jobs_per_busy_hour,
            "later": figures.later,
            "first_enqueued": _iso(figures.first_enqueued),
            "last_finished": _iso(figures.last_finished),
            "drain_seconds": figures.drain_seconds,
            "failure_rate": figures.failure_rate,
            "form_yield": figures.form_yield,
            "clean_yield": figures.clean_yield,
            "approved_per_gpu_hour": figures.approved_per_compute_hour if self.on_gpu else None,
            "approved_per_compute_hour": figures.approved_per_compute_hour,
            "jobs_with_output": figures.with_output,
            "jobs_with_artifact": figures.with_artifact,
            "jobs_clean": figures.clean,
            "jobs_to_edit": figures.to_edit,
            "jobs_decided": figures.decided,
            "jobs_approved": figures.approved,
            "attempts": [
                {
                    "outcome": key.outcome,
                    "reason": key.reason,
                    "count": count,
                    "wasted_seconds": figures.wasted.get(key, 0.0),
                }
                for key, count in sorted(figures.attempts.items(), key=lambda item: (item[0][0], item[0][1] or ""))
            ],
            "rejections": dict(sorted(figures.rejections.items())),
            "prompt_tokens": figures.prompt_tokens,
            "cached_tokens": figures.cached_tokens,
            "output_tokens": figures.output_tokens,
            "prefix_hit_rate": figures.prefix_hit_rate,
            "busy_seconds": figures.busy_seconds,
            "wasted_seconds": figures.wasted_seconds,
            "draft_seconds": figures.draft_seconds,
            "redeemed_seconds": figures.redeemed_seconds,
            "verification_seconds": figures.verification_seconds,
            "saved_tokens": figures.saved_tokens,
            "resident_seconds": figures.resident_seconds,
        }


def drain_report(
    engine: Engine, since: datetime, until: datetime | None = None, prices: Prices | None = None
) -> DrainReport:
    """Read a report in its own snapshot. See `read_report`."""
    with snapshot(engine) as connection:
        return read_report(connection, since, until, prices)


def snapshot(engine: Engine) -> Connection:
    """A connection on which every statement sees the same moment. The caller has to close it."""
    return engine.connect().execution_options(isolation_level="REPEATABLE READ")


def read_report(
    connection: Connection, since: datetime, until: datetime | None = None, prices: Prices | None = None
) -> DrainReport:
    """The report of [since, until). `until` None: now, by the database's clock."""
    until = until or connection.execute(statement("admin/now")).scalar_one()
    window = {"since": since, "until": until}

    def rows(name: str, parameters: Mapping[str, Any] = window) -> list[Row[Any]]:
        return list(connection.execute(statement(f"admin/{name}"), parameters))

    sessions = tuple(
        Session(
            str(row.id),
            row.model,
            row.device,
            row.gpus,
            row.resident_seconds,
            row.direct_seconds,
            row.interactive_seconds,
            row.unattributed_seconds,
            row.declared,
        )
        for row in rows("report_sessions")
    )
    declared = sorted({f"{session.model} on {session.device}" for session in sessions if session.declared})
    keys = read_keys(connection, since, until)
    bill = Bill(read_usage(connection, since, until), prices or Prices(), tuple(declared), keys)
    kinds: defaultdict[str, Figures] = defaultdict(Figures)
    for row in rows("report_jobs"):
        jobs = Counter({row.state: row.jobs})
        kinds[row.kind] += Figures(jobs, first_enqueued=row.first_enqueued, last_finished=row.last_finished)
    for row in rows("report_open", {}):
        kinds[row.kind] += Figures(jobs=Counter({row.state: row.jobs}), later=row.later)
    for row in rows("report_attempts"):
        kinds[row.kind] += tried(row)
    for row in rows("report_rejections"):
        kinds[row.kind] += Figures(rejections=Counter({row.reason: row.outputs}))
    for kind, line in bill.by("kind").items():
        if kind == INTERACTIVE:
            continue
        kinds[kind] = _billed(kinds[kind], line.usage)
    total = replace(sum(kinds.values(), Figures()), resident_seconds=bill.total.usage.resident_seconds)
    for kind, figures in kinds.items():  # a kind's share of the residency is its share of the busy seconds
        share = _ratio(figures.busy_seconds, total.busy_seconds) or 0.0
        kinds[kind] = replace(figures, resident_seconds=total.resident_seconds * share)
    drains = sum(row.emptied for row in rows("list_drains"))  # a drain of several days has several records
    return DrainReport(since, until, sessions, total, dict(sorted(kinds.items())), bill, drains)


def attempted(row: Row[Any]) -> Figures:
    """The figures of one row of `admin/report_attempts`."""
    return replace(
        tried(row),
        prompt_tokens=row.prompt_tokens,
        cached_tokens=row.cached_tokens,
        output_tokens=row.output_tokens,
        busy_seconds=row.compute_seconds,
        verification_seconds=row.verification_seconds,
        saved_tokens=row.saved_tokens,
    )


def tried(row: Row[Any]) -> Figures:
    """The outcomes of attempts, and the seconds of attempts that left neither an artifact nor a useful draft."""
    key = AttemptKey(row.outcome, row.reason)
    kept = row.draft_seconds + row.redeemed_seconds
    wasted = {} if row.outcome == Outcome.SUCCEEDED else {key: row.compute_seconds - kept}
    return Figures(
        attempts=Counter({key: row.attempts}),
        wasted=wasted,
        draft_seconds=row.draft_seconds,
        redeemed_seconds=row.redeemed_seconds,
    )


def _billed(figures: Figures, usage: BilledUsage) -> Figures:
    """Add the usage from the bill. Attempts that are no longer in the history count as `DELETED`."""
    succeeded, deleted = AttemptKey(Outcome.SUCCEEDED, None), AttemptKey(DELETED, None)
    gone = usage.attempts - usage.accepted - figures.unsuccessful.total()
    wasted, attempts = dict(figures.wasted), figures.attempts.copy()
    attempts[succeeded] = max(attempts[succeeded], usage.accepted)
    if gone > 0:
        attempts[deleted] = gone
        known = figures.wasted_seconds + figures.draft_seconds + figures.redeemed_seconds
        wasted[deleted] = max(usage.wasted_seconds - known, 0.0)
    return replace(
        figures,
        attempts=attempts,
        wasted=wasted,
        prompt_tokens=usage.prompt_tokens,
        cached_tokens=usage.cached_tokens,
        output_tokens=usage.output_tokens,
        busy_seconds=usage.busy_seconds,
        verification_seconds=usage.verification_seconds,
        saved_tokens=usage.saved_tokens,
        with_output=usage.with_output,
        with_artifact=usage.with_artifact,
        clean=usage.clean,
        to_edit=usage.to_edit,
        decided=usage.decided,
        approved=usage.approved,
        draft_seconds=usage.draft_seconds,
        redeemed_seconds=usage.redeemed_seconds,
    )


def _ratio(above: float, below: float) -> float | None:
    return above / below if below else None


def _iso(moment: datetime | None) -> str | None:
    return moment.astimezone(UTC).isoformat() if moment else None
