"""Watches a queue while it drains: progress, rate, and obstacles. Also waits until a queue is idle."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime

from sqlalchemy import Engine

from thothy_ai.admin.processes import connected
from thothy_ai.db.statements import statement
from thothy_ai.queue.control import Control, read_control
from thothy_ai.queue.forecast.outlook import Forecast
from thothy_ai.queue.forecast.store import current
from thothy_ai.queue.pauses import Pause, Scope, read_pauses
from thothy_ai.queue.status import Unserved, unserved_jobs

SOON_SECONDS = 60  # a drain waits for jobs that are due within this time
POLL_SECONDS = 0.5
OBSTACLE_SECONDS = 5.0  # between two looks for obstacles
FORECAST_SECONDS = 2.0  # between two readings of the forecast
MODEL_SECONDS = 60.0  # for an engine to appear that serves the remaining jobs
RATE_WINDOW = 60.0  # seconds; a longer window would mix kinds that take different times
MIN_RATE_SECONDS, MIN_RATE_JOBS = 5.0, 5  # with less, there is no rate


@dataclass(frozen=True, slots=True)
class DrainProgress:
    """The progress of a drain, by the database's clock."""

    queued: int  # due, or due soon
    dispatched: int
    running: int
    later: int  # enqueued for a later time, and not due soon
    finished: int  # since the drain began
    oldest: datetime | None  # when the oldest due job became due
    next_due: datetime | None  # when the next of the queued jobs that wait for their time is due
    all_wait: bool  # whether every job that is not `later` waits for its time, as a retry does
    now: datetime
    unserved: int = 0  # queued jobs whose model no engine serves

    @property
    def open(self) -> int:
        """The number of jobs that are neither finished nor `later`."""
        return self.queued + self.dispatched + self.running

    @property
    def stranded(self) -> bool:
        """Whether there are open jobs, and no engine serves the model of any of them."""
        return 0 < self.open == self.unserved


@dataclass(frozen=True, slots=True)
class Obstacles:
    """The conditions that keep a queue from draining."""

    pause: Control | None  # of the whole queue
    missing: tuple[str, ...]  # of dispatcher, worker and engine
    unserved: Unserved = field(default_factory=Unserved)
    pauses: tuple[Pause, ...] = ()  # of parts of the queue


def progress(engine: Engine, since: datetime | None) -> DrainProgress:
    """The progress of the drain that began at `since` (None: it begins now)."""
    with engine.connect() as connection:
        found = connection.execute(statement("admin/progress"), {"since": since, "soon_seconds": SOON_SECONDS})
        return DrainProgress(*found.one())


def obstacles(engine: Engine) -> Obstacles:
    """The current obstacles that keep the queue from draining."""
    processes, control = connected(engine), read_control(engine)
    missing = [name for name in ("dispatcher", "worker") if name not in processes]
    with engine.connect() as connection:
        if "worker" in processes and not connection.scalar(statement("admin/resident_engines")):
            missing.append("engine")
        unserved, pauses = unserved_jobs(connection), read_pauses(connection)
    return Obstacles(control if control.paused else None, tuple(missing), unserved, pauses)


@dataclass(frozen=True, slots=True)
class DrainStatus:
    """One observation of a drain whose jobs have been due since `since`.

    `rate` is in jobs per second, None while unknown. `stranded`: no engine serves the model of any open job, and none
    appeared in time.
    """

    since: datetime
    progress: DrainProgress
    include_delayed: bool  # whether jobs that are due later are waited for
    obstacles: Obstacles | None = None
    rate: float | None = None
    forecast: Forecast | None = None
    stranded: bool = False

    @property
    def open(self) -> int:
        """The number of jobs that the drain waits for."""
        return self.progress.open + (self.progress.later if self.include_delayed else 0)


class Rate:
    """Jobs per second over the last `RATE_WINDOW` seconds, from the first finished job on."""

    def __init__(self) -> None:
        self._points: deque[tuple[float, int]] = deque()

    def update(self, now: float, finished: int) -> float | None:
        """Add a sample of the finished jobs at `now` (monotonic seconds); returns the rate, None with too few jobs."""
        if not finished:
            return None
        self._points.append((now, finished))
        while now - self._points[0][0] > RATE_WINDOW:
            self._points.popleft()
        start, first = self._points[0]
        if finished - first < MIN_RATE_JOBS or now - start < MIN_RATE_SECONDS:
            return None
        return (finished - first) / (now - start)


class ObstacleWatch:
    """Looks for obstacles every `OBSTACLE_SECONDS`."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._looked_at = float("-inf")
        self._latest: Obstacles | None = None

    def look(self, now: float, at: DrainProgress) -> Obstacles:
        """The obstacles at `now` (monotonic seconds). No process is missing at the first look and while jobs run."""
        first = self._latest is None
        if self._latest is None or now - self._looked_at >= OBSTACLE_SECONDS:
            found = obstacles(self._engine)
            idle = not first and not at.running and not at.all_wait
            self._latest = found if idle else replace(found, missing=())
            self._looked_at = now
        return self._latest


class StrandedWatch:
    """Gives an engine `grace` seconds to appear once all open jobs wait for one."""

    def __init__(self, grace: float) -> None:
        self._grace = grace
        self._since: float | None = None

    def over(self, now: float, at: DrainProgress, seen: Obstacles) -> bool:
        """Whether at `now` (monotonic) there have been only open jobs that no engine serves for `grace` seconds."""
        if not at.stranded or seen.missing:  # the missing process can be the engine that is waited for, or its worker
            self._since = None
            return False
        self._since = now if self._since is None else self._since
        return now - self._since >= self._grace


def watch_drain(
    engine: Engine, timeout: float | None = None, *, include_delayed: bool = False, model_timeout: float = MODEL_SECONDS
) -> Iterator[DrainStatus]:
    """Look at the queue every half second until no due job is open, or `timeout` seconds have passed.

    The first look, taken at once, has no obstacles, rate or forecast. Jobs that are due later are waited for only with
    `include_delayed`. The watch also ends when there have been only jobs that no engine serves for `model_timeout`
    seconds.
    """
    start = progress(engine, None)
    status = DrainStatus(start.oldest or start.now, start, include_delayed)
    yield status
    if not status.open:
        return
    rate, obstacle_watch, stranded_watch = Rate(), ObstacleWatch(engine), StrandedWatch(model_timeout)
    forecast, forecast_at = None, -math.inf
    until = math.inf if timeout is None else time.monotonic() + timeout
    while True:
        at, now = progress(engine, start.now), time.monotonic()
        if forecast is None or now - forecast_at >= FORECAST_SECONDS:
            forecast, forecast_at = current(engine), now
        seen = obstacle_watch.look(now, at)
        status = replace(
            status,
            progress=at,
            obstacles=seen,
            rate=rate.update(now, at.finished),
            forecast=forecast.after(now - forecast_at),
            stranded=not (include_delayed and at.later) and stranded_watch.over(now, at, seen),
        )
        yield status
        if not status.open or status.stranded or now >= until:
            return
        time.sleep(POLL_SECONDS)


def until_idle(engine: Engine, scope: Scope | None = None, name: str | None = None) -> Iterator[int]:
    """Take dispatched jobs of the paused part back and wait for its running jobs; yields the number that still run.

    `scope` and `name` say which part of the queue is paused; without them, it is the whole queue.
    """
    while True:
        with engine.begin() as connection:
            now = connection.execute(statement("admin/recall_dispatched"), {"scope": scope, "name": name}).one()
        yield now.running
        if not now.running and not now.dispatched:
            return
        time.sleep(POLL_SECONDS)
