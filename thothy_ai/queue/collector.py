"""The queue's metrics, read from Postgres and Redis by a thread of their own: depth, deadlines, leases, deaths.

A scrape shows the last reading and waits for nothing: counting a million jobs takes Postgres about 0.2 s, and an
unreachable Redis takes seconds to time out. Every dispatcher process exports them, standbys too.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from prometheus_client import REGISTRY, Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector
from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from thothy_ai.db.connect import make_engine
from thothy_ai.db.statements import statement
from thothy_ai.db.states import JobState
from thothy_ai.queue import metrics
from thothy_ai.queue.forecast.metrics import forecast_families
from thothy_ai.queue.forecast.outlook import Forecast
from thothy_ai.queue.forecast.store import asking, read_kept
from thothy_ai.queue.pauses import SCOPES
from thothy_ai.queue.status import MAX_MODELS, MAX_UNSERVED, QueueStatus, queue_status
from thothy_ai.settings import Settings

logger = logging.getLogger(__name__)

OTHER_MODELS = "(others)"  # not a possible name of a model
OPEN_STATES = (JobState.QUEUED, JobState.DISPATCHED, JobState.RUNNING)
READING_SECONDS = 5.0  # between two readings
READING_SHARE = 30  # pause after a reading, at least, in multiples of its duration
STALE_SECONDS = 60.0  # until a late reading counts as missing, because Postgres does not answer


@dataclass(frozen=True, slots=True)
class QueueReading:
    """One reading of the tables; `status` is None when Postgres did not answer."""

    status: QueueStatus | None
    dead: tuple[tuple[str, str, int], ...] = ()  # kind, reason, jobs
    forecast: Forecast | None = None  # None while none is made
    partitions: tuple[tuple[str, bool], ...] = ()  # table, whether tomorrow's partition is missing
    lost: tuple[tuple[str, str, float], ...] = ()  # engine, machine, seconds since it was ready
    decided: tuple[tuple[str, int, int], ...] = ()  # kind, jobs decided on, jobs approved
    resident_seconds: float = 0.0
    seconds: float = 0.0  # duration of the reading


class QueueCollector(Collector):
    """Shows the last reading; none before the first."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._reading: QueueReading | None = None
        self._good_until = math.inf

    def describe(self) -> Iterable[Metric]:
        """Return nothing: registering must not query Postgres."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """The metric families of the last reading."""
        reading = self._reading if time.monotonic() < self._good_until else QueueReading(None)
        return iter(()) if reading is None else families(reading)

    def read(self) -> float:
        """Read the tables; returns how many seconds to wait until the next time. Called by one thread."""
        began = time.monotonic()
        reading = QueueReading(None)
        with suppress(SQLAlchemyError):
            status = queue_status(self._engine)
            with self._engine.connect() as connection:
                dead = connection.execute(statement("queue/dead_jobs")).all()
                partitions = connection.execute(statement("queue/missing_partitions")).all()
                lost = connection.execute(statement("queue/lost_engines")).all()
                decided = connection.execute(statement("queue/decided_jobs")).all()
                resident_seconds = connection.execute(statement("queue/residency")).scalar_one()
                kept = read_kept(asking(connection))
            reading = QueueReading(
                status,
                tuple((row.kind, row.reason, row.jobs) for row in dead),
                kept.forecast.after(kept.age) if kept and kept.fresh else None,
                tuple((row.name, row.missing) for row in partitions),
                tuple((row.name, row.machine, row.seconds) for row in lost),
                tuple((row.kind, row.decided, row.approved) for row in decided),
                resident_seconds,
                time.monotonic() - began,
            )
        ended = time.monotonic()
        pause = max(READING_SECONDS, READING_SHARE * reading.seconds)
        self._reading, self._good_until = reading, ended + pause + STALE_SECONDS + (ended - began)
        return pause


def export_queue(settings: Settings, list_lengths: Callable[[], tuple[float, float]]) -> None:
    """Export the queue's metrics from this process, over a connection of its own, if metrics are served.

    `list_lengths` reads from Redis how many hints wait, in all and urgent; NaN when Redis cannot be reached.
    """
    if not settings.metrics_port:
        return
    collector = QueueCollector(make_engine(settings, application="metrics", pool_size=1))
    REGISTRY.register(collector)
    for name, read in (("queue-metrics", collector.read), ("redis-metrics", lambda: read_redis(list_lengths))):
        threading.Thread(target=_read_forever, args=(read,), name=name, daemon=True).start()


def read_redis(list_lengths: Callable[[], tuple[float, float]]) -> float:
    """Read the lists' lengths; returns how many seconds to wait until the next time."""
    every, urgent = list_lengths()
    metrics.LIST_LENGTH.set(every)
    metrics.URGENT_LENGTH.set(urgent)
    metrics.REDIS_UP.set(not math.isnan(every))
    return READING_SECONDS


def _read_forever(read: Callable[[], float]) -> None:
    while True:
        try:
            pause = read()
        except Exception:
            logger.exception("metrics cannot be read")
            pause = READING_SECONDS
        time.sleep(pause)


def families(reading: QueueReading) -> Iterator[Metric]:
    """The metric families of a reading."""
    yield GaugeMetricFamily("thothy_database_up", "1 when Postgres answered.", value=float(reading.status is not None))
    if reading.status is not None:
        yield from _status_families(reading.status)
        yield _family(
            "thothy_dead_jobs",
            "Jobs that died in the last 24 hours and were not retried.",
            ["kind", "reason"],
            (((kind, reason), jobs) for kind, reason, jobs in reading.dead),
        )
        yield _family(
            "thothy_partition_missing",
            "1 if a history table has no partition for tomorrow's jobs.",
            ["table"],
            (((table,), missing) for table, missing in reading.partitions),
        )
        yield _family(
            "thothy_lost_engine_seconds",
            "Seconds since a lost engine was last ready: one that was ready within the last day, is not now, and was"
            " not stopped.",
            ["engine", "machine"],
            (((name, machine), seconds) for name, machine, seconds in reading.lost),
        )
        yield _family(
            "thothy_jobs_decided",
            "Jobs that ended in the last seven days and whose artifact a person has approved or rejected.",
            ["kind"],
            (((kind,), decided) for kind, decided, _ in reading.decided),
        )
        yield _family(
            "thothy_jobs_approved",
            "Of them, those whose artifact is approved.",
            ["kind"],
            (((kind,), approved) for kind, _, approved in reading.decided),
        )
        text = "Device-seconds for which engines were resident in the last seven days."
        yield GaugeMetricFamily("thothy_resident_seconds", text, value=reading.resident_seconds)
        text = "How long it took to read the queue's metrics from Postgres."
        yield GaugeMetricFamily("thothy_queue_reading_seconds", text, value=reading.seconds)
    if reading.forecast is not None:
        yield from forecast_families(reading.forecast)


def _status_families(status: QueueStatus) -> Iterator[Metric]:
    states = status.states.values()
    yield _family(
        "thothy_queue_depth",
        "Open jobs, by state.",
        ["state"],
        (((state,), status[state].jobs) for state in OPEN_STATES),
    )
    yield GaugeMetricFamily(
        "thothy_queue_oldest_age_seconds",
        "Seconds since the oldest waiting job became due that is not held.",
        value=status.oldest_age,
    )
    yield GaugeMetricFamily(
        "thothy_queue_paused", "1 while an operator has paused the queue.", value=float(status.paused)
    )
    yield _family(
        "thothy_queue_pauses",
        "Kinds, tenants, models and engines that an operator has paused, by what they are.",
        ["scope"],
        (((scope,), sum(pause.scope == scope for pause in status.pauses)) for scope in SCOPES),
    )
    yield GaugeMetricFamily(
        "thothy_queue_held_jobs",
        "Due jobs that wait because their kind, tenant or model is paused, or all engines are.",
        value=float(status["queued"].held),
    )
    unserved = [((model,), jobs) for model, jobs in status.unserved.items()]
    if status.unserved_others:
        unserved.append(((OTHER_MODELS,), status.unserved_others))
    yield _family(
        "thothy_queue_unserved_jobs",
        f"Queued jobs for a model, adapter or alias that no engine serves, counted up to {MAX_UNSERVED:,};"
        f" those of names after the first {MAX_MODELS} together, as `{OTHER_MODELS}`.",
        ["model"],
        unserved,
    )
    yield GaugeMetricFamily(
        "thothy_queue_delayed_jobs",
        "Queued jobs that are not due yet.",
        value=float(sum(count.delayed for count in states)),
    )
    yield _family(
        "thothy_queue_deadline_jobs",
        "Open jobs whose deadline is within this time.",
        ["within"],
        (
            (("1h",), sum(count.due_1h for count in states)),
            (("6h",), sum(count.due_6h for count in states)),
            (("24h",), sum(count.due_24h for count in states)),
        ),
    )
    running = status["running"]
    yield _family(
        "thothy_leases",
        "Running jobs by whether their worker still sends heartbeats.",
        ["state"],
        ((("held",), running.jobs - running.expired_leases), (("expired",), running.expired_leases)),
    )


def _family(name: str, text: str, labels: Sequence[str], values: Iterable[tuple[Sequence[str], float]]) -> Metric:
    family = GaugeMetricFamily(name, text, labels=labels)
    for label, value in values:
        family.add_metric(label, float(value))
    return family
