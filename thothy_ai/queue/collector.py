"""The queue's metrics, read from Postgres when Prometheus scrapes: depth, deadlines, leases, deaths.

Every dispatcher process exports them, standbys too: no figure can be older than `CACHE_SECONDS`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from prometheus_client import REGISTRY, Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector
from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from thothy_ai.db.connect import make_engine
from thothy_ai.db.statements import statement
from thothy_ai.db.states import JobState
from thothy_ai.queue.forecast.metrics import forecast_families
from thothy_ai.queue.forecast.outlook import Forecast
from thothy_ai.queue.forecast.store import asking, read_kept
from thothy_ai.queue.status import MAX_UNSERVED, QueueStatus, queue_status
from thothy_ai.settings import Settings

OPEN_STATES = (JobState.QUEUED, JobState.DISPATCHED, JobState.RUNNING)
CACHE_SECONDS = 5.0  # several Prometheus servers, or an impatient person, cost Postgres one query


@dataclass(frozen=True, slots=True)
class Reading:
    """One reading of the tables; `status` is None when Postgres did not answer."""

    status: QueueStatus | None
    dead: tuple[tuple[str, str, int], ...] = ()  # kind, reason, jobs
    forecast: Forecast | None = None  # None while none is made


class QueueCollector(Collector):
    """Reads the queue at most every `CACHE_SECONDS`. Never raises: a scrape must not fail because Postgres is away."""

    def __init__(self, engine: Engine, cache_seconds: float = CACHE_SECONDS) -> None:
        self._engine = engine
        self._cache_seconds = cache_seconds
        self._lock = threading.Lock()
        self._reading = Reading(None)
        self._good_until = 0.0

    def describe(self) -> Iterable[Metric]:
        """Nothing: registering must not query Postgres."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """The current metric families."""
        return families(self._latest())

    def _latest(self) -> Reading:
        with self._lock:
            if time.monotonic() >= self._good_until:
                self._reading = self._read()
                self._good_until = time.monotonic() + self._cache_seconds
            return self._reading

    def _read(self) -> Reading:
        try:
            status = queue_status(self._engine)
            with self._engine.connect() as connection:
                rows = connection.execute(statement("queue/dead_jobs")).all()
                kept = read_kept(asking(connection))
        except SQLAlchemyError:
            return Reading(None)
        made = kept.forecast.after(kept.age) if kept and kept.fresh else None
        return Reading(status, tuple((row.kind, row.reason, row.jobs) for row in rows), made)


def export_queue(settings: Settings) -> None:
    """Export the queue's metrics from this process, over a connection of its own, if metrics are served."""
    if settings.metrics_port:
        REGISTRY.register(QueueCollector(make_engine(settings, application="metrics", pool_size=1)))


def families(reading: Reading) -> Iterator[Metric]:
    """The metric families of a reading."""
    yield GaugeMetricFamily("thothy_database_up", "1 when Postgres answered.", value=float(reading.status is not None))
    if reading.status is not None:
        yield from _waiting(reading.status)
        yield _deadlines(reading.status)
        yield _leases(reading.status)
        yield _dead(reading.dead)
    if reading.forecast is not None:
        yield from forecast_families(reading.forecast)


def _waiting(status: QueueStatus) -> Iterator[Metric]:
    depth = GaugeMetricFamily("thothy_queue_depth", "Open jobs, by state.", labels=["state"])
    for state in OPEN_STATES:
        depth.add_metric([state], float(status[state].jobs))
    yield depth
    yield GaugeMetricFamily(
        "thothy_queue_oldest_age_seconds",
        "How long the oldest waiting job has been allowed to run.",
        value=status.oldest_age,
    )
    yield GaugeMetricFamily(
        "thothy_queue_paused", "1 while an operator has paused the queue.", value=float(status.paused)
    )
    delayed = sum(count.delayed for count in status.states.values())
    unserved = GaugeMetricFamily(
        "thothy_queue_unserved_jobs",
        f"Queued jobs for a model or alias that no engine serves, counted up to {MAX_UNSERVED:,}.",
        labels=["model"],
    )
    for model, jobs in status.unserved.items():
        unserved.add_metric([model], float(jobs))
    yield unserved
    yield GaugeMetricFamily("thothy_queue_delayed_jobs", "Queued jobs that may not run yet.", value=float(delayed))


def _deadlines(status: QueueStatus) -> Metric:
    deadlines = GaugeMetricFamily(
        "thothy_queue_deadline_jobs", "Open jobs whose deadline is within this time.", labels=["within"]
    )
    counts = status.states.values()
    deadlines.add_metric(["1h"], float(sum(count.due_1h for count in counts)))
    deadlines.add_metric(["6h"], float(sum(count.due_6h for count in counts)))
    deadlines.add_metric(["24h"], float(sum(count.due_24h for count in counts)))
    return deadlines


def _leases(status: QueueStatus) -> Metric:
    running = status["running"]
    leases = GaugeMetricFamily(
        "thothy_leases", "Running jobs by whether their worker still sends heartbeats.", labels=["state"]
    )
    leases.add_metric(["held"], float(running.jobs - running.expired_leases))
    leases.add_metric(["expired"], float(running.expired_leases))
    return leases


def _dead(dead: Iterable[tuple[str, str, int]]) -> Metric:
    family = GaugeMetricFamily(
        "thothy_dead_jobs", "Jobs that died in the last 24 hours and were not retried.", labels=["kind", "reason"]
    )
    for kind, reason, jobs in dead:
        family.add_metric([kind, reason], float(jobs))
    return family
