"""The progress of a drain, and what keeps it from going on."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from sqlalchemy import Engine

from thothy_ai.admin.processes import connected
from thothy_ai.db.statements import statement
from thothy_ai.queue.control import Control, read_control
from thothy_ai.queue.status import Unserved, unserved_jobs

SOON_SECONDS = 60  # a drain waits for jobs that are due within this time


@dataclass(frozen=True, slots=True)
class Progress:
    """A drain at one moment.

    `later`: jobs that were enqueued for a later time, and are not due soon; `queued` excludes them. `finished` counts
    since the drain began. `oldest`: since when the oldest job has been due. `next_due`: when the next queued job is due
    that waits for its time. `all_wait`: every job that is not `later` waits for its time, such as a retry's.
    `unserved`: queued jobs that are not `later` and name a model which no engine serves.
    """

    queued: int
    dispatched: int
    running: int
    later: int
    finished: int
    oldest: datetime | None
    next_due: datetime | None
    all_wait: bool
    now: datetime
    unserved: int = 0

    @property
    def open(self) -> int:
        """Jobs that are neither finished nor later."""
        return self.queued + self.dispatched + self.running

    @property
    def stranded(self) -> bool:
        """Whether jobs are open, and each of them names a model that no engine serves."""
        return 0 < self.open == self.unserved


@dataclass(frozen=True, slots=True)
class Obstacles:
    """What keeps a queue from draining: a pause, parts of the service that are missing, and jobs that wait for a model
    that no engine serves.
    """

    pause: Control | None
    missing: tuple[str, ...]
    unserved: Unserved = field(default_factory=Unserved)


def progress(engine: Engine, since: datetime | None) -> Progress:
    """The progress of the drain that began at `since` (None: it begins now)."""
    with engine.connect() as connection:
        found = connection.execute(statement("admin/progress"), {"since": since, "soon_seconds": SOON_SECONDS})
        return Progress(*found.one())


def obstacles(engine: Engine) -> Obstacles:
    """What keeps the queue from draining at this moment."""
    found, control = connected(engine), read_control(engine)
    missing = [name for name in ("dispatcher", "worker") if name not in found]
    if "worker" in found and not _resident_engines(engine):
        missing.append("engine")
    with engine.connect() as connection:
        unserved = unserved_jobs(connection)
    return Obstacles(control if control.paused else None, tuple(missing), unserved)


def _resident_engines(engine: Engine) -> int:
    with engine.connect() as connection:
        return int(connection.execute(statement("admin/resident_engines")).scalar_one())
