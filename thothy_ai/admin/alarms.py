"""Judges those alarms of `deploy/prometheus/alerts.yml` that need no Prometheus, by looking at the installation.

Each alarm has the name of its alert, and therefore its runbook. Alarms that need Prometheus' history are not judged
here; if its address is set, Prometheus is asked about them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, NamedTuple

from thothy_ai.admin.alert_delivery import CAUSES
from thothy_ai.admin.engines import EngineStatus
from thothy_ai.admin.today import DayFigures
from thothy_ai.admin.top.engines import EngineFigures
from thothy_ai.admin.top.queue import RecordFigures, WorkerFigures
from thothy_ai.jobs.text.strings import counted

# By name: the severity, and for how many seconds its condition must hold before it fires.
RULES: Final = {
    "ThothyPostgresUnreachable": ("critical", 60),
    "ThothyRedisUnreachable": ("critical", 60),
    "ThothyEngineDown": ("critical", 300),
    "ThothyWorkerMissing": ("critical", 120),
    "ThothyDispatcherMissing": ("critical", 120),
    "ThothyReaperMissing": ("critical", 120),
    "ThothyQueueStopped": ("critical", 180),
    "ThothyJobsNotAdvancing": ("critical", 300),
    "ThothyEngineStalled": ("critical", 120),
    "ThothyLeasesNotReaped": ("critical", 180),
    "ThothyGpuMemoryNearlyFull": ("critical", 120),
    "ThothyPublishingWindowAtRisk": ("critical", 600),
    "ThothyFailuresFast": ("critical", 120),
    "ThothyModelNotServed": ("warning", 600),
    "ThothyQueuePausedLong": ("warning", 1800),
    "ThothyDeadlinesAtRisk": ("warning", 600),
    "ThothyDeadlinesMissed": ("warning", 0),
    "ThothyDeadLetters": ("warning", 900),
    "ThothyNothingPublishable": ("warning", 600),
}
# Alarms that only Prometheus can judge, with their severities.
BY_PROMETHEUS: Final = {
    "ThothyArtifactYieldDropped": "warning",
    "ThothyEngineLost": "warning",
    "ThothyFailuresSlow": "warning",
    "ThothyKvBlocksExhausted": "warning",
    "ThothyLeaderStuck": "critical",
    "ThothyLeasesLost": "warning",
    "ThothyPartitionMissing": "critical",
    "ThothyQueueGrowing": "warning",
    "ThothyReaperRuleFailing": "critical",
    "ThothyRequestsDenied": "warning",
}
STOPPED_SECONDS = 120  # the wait of the oldest due job from which on the queue counts as stopped
BURN = 0.144  # the share of failing jobs, 14.4 times the budget of 1 %
FULL = 0.95


@dataclass(frozen=True, slots=True)
class Sight:
    """The observed state of the installation. None: unknown."""

    record: RecordFigures | None
    workers: WorkerFigures | None
    engine: EngineFigures | None
    fleet: Sequence[EngineStatus] | None
    day: DayFigures | None
    elsewhere: Sequence[Alarm] = ()  # from Prometheus
    postgres_away: bool = False
    redis_away: bool = False


class Alarm(NamedTuple):
    """An alarm whose condition has held for `seconds` as far as observed. It fires once that is long enough."""

    name: str
    severity: str
    says: str
    seconds: float
    fires: bool


class Alarms:
    """Remembers since when each condition has held."""

    def __init__(self) -> None:
        self._since: dict[tuple[str, str], float] = {}

    def look(self, sight: Sight, now: float) -> list[Alarm]:
        """The alarms whose conditions hold at `now` (monotonic seconds), except those that another alarm explains."""
        held = {(name, of): (says, already) for name, of, says, already in _held(sight)}
        self._since = {each: self._since.get(each, now) for each in held}
        found = [*sight.elsewhere]
        for (name, of), (says, already) in held.items():
            severity, needed = RULES[name]
            seconds = max(now - self._since[name, of], already)
            found.append(Alarm(name, severity, says, seconds, seconds >= needed))
        firing = {alarm.name for alarm in found if alarm.fires}
        explained = {name for cause, names, _ in CAUSES if cause in firing for name in names}
        return sorted(
            (each for each in found if each.name not in explained), key=lambda each: (not each.fires, each.severity)
        )


Held = tuple[
    str, str, str, float
]  # name, subject, a sentence, and the seconds for which the condition is known to have held


def _held(sight: Sight) -> Iterator[Held]:
    if sight.postgres_away:
        yield "ThothyPostgresUnreachable", "", "Postgres cannot be reached", 0.0
    if sight.redis_away:
        yield "ThothyRedisUnreachable", "", "Redis cannot be reached", 0.0
    if sight.record is not None:
        yield from _of_queue(sight.record)
    yield from _of_engines(sight)
    if sight.day is not None:
        yield from _of_day(sight.day)
    if sight.workers is not None and not sight.workers.workers:
        yield "ThothyWorkerMissing", "", "No worker is running", 0.0


def _of_queue(record: RecordFigures) -> Iterator[Held]:
    status, forecast = record.queue.status, record.queue.forecast
    waiting = status["queued"].jobs + status["dispatched"].jobs - status["queued"].delayed - status["queued"].held
    unserved = sum(status.unserved.values()) + status.unserved_others
    if status.oldest_age > STOPPED_SECONDS and not status["running"].jobs and not status.paused and unserved < waiting:
        yield "ThothyQueueStopped", "", f"Jobs have waited for {status.oldest_age:.0f} s, and none is running", 0.0
    for model, jobs in status.unserved.items():
        yield "ThothyModelNotServed", model, f"Jobs that wait for {model}, which no engine serves: {jobs:,}", 0.0
    if status.paused and status["queued"].jobs:
        paused = (datetime.now(UTC) - status.changed_at).total_seconds() if status.changed_at else 0.0
        yield "ThothyQueuePausedLong", "", "Jobs wait because the queue is paused", paused
    elif status["queued"].held:
        yield "ThothyQueuePausedLong", "", "Jobs wait because a part of the queue is paused", 0.0
    if status["running"].expired_leases:
        jobs = status["running"].expired_leases
        yield "ThothyLeasesNotReaped", "", f"Expired leases whose jobs were not recovered: {jobs:,}", 0.0
    if forecast is not None and forecast.late >= 1:
        yield "ThothyDeadlinesAtRisk", "", f"Jobs forecast to miss their deadline: {forecast.late:,.0f}", 0.0
    if forecast is not None and (forecast.publish_left or 0) >= 1:
        says = f"Jobs forecast to be open at the publishing time: {forecast.publish_left:,.0f}"
        yield "ThothyPublishingWindowAtRisk", "", says, 0.0
    for kind in record.hour.unpublishable:
        yield "ThothyNothingPublishable", kind, f"No {kind} output of the last hour was accepted", 0.0


def _of_engines(sight: Sight) -> Iterator[Held]:
    lost = [each for each in sight.fleet or () if each.state == "silent"]
    for each in lost:
        yield "ThothyEngineDown", each.name, f"The engine {each.name} does not respond", each.heartbeat_age
    if not lost and sight.fleet is not None and not any(each.lives for each in sight.fleet):
        yield "ThothyEngineDown", "", "No engine is responding", 0.0
    engine = sight.engine
    if engine is None:
        return
    if engine.running and engine.busy_share == 0:
        says = f"Sequences that run in an engine that executes no steps: {engine.running:,}"
        yield "ThothyEngineStalled", "", says, 0.0
    if not engine.running and sight.record is not None and (jobs := sight.record.queue.status["running"].jobs):
        yield "ThothyJobsNotAdvancing", "", f"Running jobs, of which no engine has any: {jobs:,}", 0.0
    share = engine.memory_used / engine.memory_total if engine.memory_total else 0.0
    if share > FULL and engine.memory_used > engine.memory_planned:
        says = f"{share:.0%} of the device memory is in use, more than was planned for"
        yield "ThothyGpuMemoryNearlyFull", "", says, 0.0


def _of_day(day: DayFigures) -> Iterator[Held]:
    for role, name in (("dispatcher", "ThothyDispatcherMissing"), ("reaper", "ThothyReaperMissing")):
        if role not in day.processes or not day.processes[role].leads:
            yield name, "", f"No {role} is leading", 0.0
    for row in day.kinds:
        if row.expired_15m:
            yield (
                "ThothyDeadlinesMissed",
                row.kind,
                f"{counted(row.expired_15m, f'{row.kind} job')} missed the deadline",
                0.0,
            )
        burns = row.failed_1h > BURN * row.ended_1h and row.failed_5m > BURN * row.ended_5m
        if burns and row.failed_1h >= 5:
            share = row.failed_1h / row.ended_1h
            yield "ThothyFailuresFast", row.kind, f"{share:.0%} of the {row.kind} jobs of the last hour failed", 0.0
        if row.dead_1d >= 10 and row.dead_1d > 0.01 * row.ended_1d:
            yield "ThothyDeadLetters", row.kind, f"{counted(row.dead_1d, f'{row.kind} job')} died in the last day", 0.0
