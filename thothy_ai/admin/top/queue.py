"""The queue, the workers and the last hour, for `thothy top`.

An expensive count is repeated only after twenty times its own duration, so that even with a long queue, watching takes
at most a twentieth of a Postgres process.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Generic, TypeVar

from redis import Redis
from sqlalchemy import Engine

from thothy_ai.admin.report.drain_report import Figures, attempted
from thothy_ai.admin.report.yields import Yields
from thothy_ai.db.connect import make_engine, reaching
from thothy_ai.db.statements import statement
from thothy_ai.queue.forecast.outlook import Forecast
from thothy_ai.queue.forecast.store import current
from thothy_ai.queue.hints import count_waiting
from thothy_ai.queue.live import interest_channel
from thothy_ai.queue.status import QueueStatus, queue_status
from thothy_ai.settings import Settings

COST = 20  # times a statement's duration have to pass before it runs again
RATE_SECONDS = 60
MIN_RATE_SECONDS = 3.0  # a rate over less time would fluctuate
HOUR = timedelta(hours=1)
MANY = 20  # outputs, from which on a kind without an accepted one is reported

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class QueueFigures:
    """The queue, counted `age_seconds` ago, and the rate of the last minute, 0 if too few jobs ended.

    `forecast` is the dispatcher's, as in `thothy drain`; None if unknown.
    """

    status: QueueStatus
    age_seconds: float
    jobs_per_second: float
    forecast: Forecast | None = None

    @property
    def delayed(self) -> int:
        """The number of queued jobs that are not due yet."""
        return self.status["queued"].delayed

    @property
    def due(self) -> int:
        """The number of open jobs that are due."""
        return self.status.open - self.delayed

    @property
    def stuck(self) -> int:
        """The number of due jobs that cannot run now, because of a pause or because no engine serves their model."""
        waiting = self.status["queued"].jobs + self.status["dispatched"].jobs - self.delayed
        unserved = sum(self.status.unserved.values()) + self.status.unserved_others
        return waiting if self.status.paused else min(waiting, self.status["queued"].held + unserved)

    @property
    def seconds_to_go(self) -> float | None:
        """Seconds until all due jobs have ended: by the forecast, or by the current rate while there is none."""
        if self.forecast is not None and self.forecast.p50 is not None:
            return self.forecast.p50
        return self.due / self.jobs_per_second if self.jobs_per_second else None


@dataclass(frozen=True, slots=True)
class HourFigures(Yields):
    """Figures of the jobs and attempts that ended in the last hour."""

    with_output: int  # jobs
    with_artifact: int
    clean: int  # jobs with an artifact in which nothing was found
    attempts: int
    reasons: tuple[tuple[str, int], ...]  # why attempts ended without an artifact, the most frequent first
    unpublishable: tuple[str, ...] = ()  # kinds without an accepted artifact in at least `MANY` outputs


@dataclass(frozen=True, slots=True)
class RecordFigures:
    queue: QueueFigures
    hour: HourFigures


@dataclass(frozen=True, slots=True)
class WorkerFigures:
    workers: int  # connected to Redis
    hints: int  # waiting for a worker


class Paced(Generic[T]):
    """Repeats a read at most every `seconds`, and rarely enough that reading takes at most a twentieth of the time."""

    def __init__(self, read: Callable[[], T], seconds: float) -> None:
        self._read = read
        self._seconds = seconds
        self._value: T | None = None
        self._read_at = self._due_at = 0.0

    def value(self) -> tuple[T, float]:
        """The latest value, and its age in seconds."""
        now = time.monotonic()
        if self._value is None or now >= self._due_at:
            self._value = self._read()
            self._read_at = time.monotonic()
            self._due_at = now + max(self._seconds, COST * (self._read_at - now))
        return self._value, time.monotonic() - self._read_at


class QueueSource:
    """Reads queue and history from Postgres."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._engine = make_engine(settings, application="cli", pool_size=1)
        self._status = Paced(lambda: queue_status(self._engine), 0.5)
        self._hour = Paced(lambda: _hour(self._engine), 5.0)
        self._forecast = Paced(lambda: current(self._engine), 2.0)

    def read(self) -> RecordFigures:
        with reaching(self._settings):
            with self._engine.connect() as connection:  # first, so that connecting does not add to the count's duration
                ended = connection.execute(statement("admin/top_rate"), {"window": RATE_SECONDS}).one()
            rate = float(ended.ended / ended.seconds) if ended.seconds >= MIN_RATE_SECONDS else 0.0
            status, age = self._status.value()
            made, made_ago = self._forecast.value()
            return RecordFigures(QueueFigures(status, age, rate, made.after(made_ago)), self._hour.value()[0])

    def close(self) -> None:
        self._engine.dispose()


class WorkerSource:
    """Reads from Redis how many workers are connected."""

    def __init__(self, settings: Settings) -> None:
        self._redis = Redis.from_url(settings.require_redis_url(), socket_timeout=5, socket_connect_timeout=5)
        self._channel = interest_channel(settings)
        self._settings = settings

    def read(self) -> WorkerFigures:
        [(_, workers)] = self._redis.pubsub_numsub(self._channel)  # every worker subscribes to it
        return WorkerFigures(int(workers), sum(count_waiting(self._redis, self._settings)))

    def close(self) -> None:
        self._redis.close()


def _hour(engine: Engine) -> HourFigures:
    with engine.connect() as connection:
        until: datetime = connection.execute(statement("admin/now")).scalar_one()
        window = {"since": until - HOUR, "until": until}
        produced = connection.execute(statement("admin/usage_yields"), window).all()
        rows = connection.execute(statement("admin/report_attempts"), window).all()
    tried = sum(map(attempted, rows), Figures())
    reasons = [(key.label, number) for key, number in tried.unsuccessful.items()]
    return HourFigures(
        with_output=sum(row.with_output for row in produced),
        with_artifact=sum(row.with_artifact for row in produced),
        clean=sum(row.clean for row in produced),
        attempts=tried.attempts.total(),
        reasons=tuple(sorted(reasons, key=lambda item: (-item[1], item[0]))),
        unpublishable=tuple(row.kind for row in produced if row.with_output >= MANY and not row.with_artifact),
    )
