"""`OpenJobs`: counts, requeues and cancels the open jobs in a stack's database."""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final
from uuid import UUID

from sqlalchemy import Engine

from thothy_ai.db.connect import make_engine, reaching
from thothy_ai.db.driver import within
from thothy_ai.db.statements import statement
from thothy_ai.errors import DatabaseError
from thothy_ai.settings import Settings

log = logging.getLogger(__name__)

RELEASE_SECONDS: Final = 2.0  # for Postgres to answer; the supervisor has other processes to watch
# Whether an ended engine session may have begun one of these requests.
Begun = Callable[[UUID | None, Sequence[str]], bool]
MAX_CALLS: Final = 500  # checked per attempt; plans make only a few


class OpenJobs:
    """Access to the jobs that have not ended. Methods raise `DatabaseError` unless they say otherwise."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._engine: Engine = make_engine(settings, application="stack", pool_size=1)

    def running(self) -> int | None:
        """How many jobs run; None if Postgres does not answer."""
        with suppress(DatabaseError):
            return self._ask("embedded/count_running")
        return None

    def count(self) -> int | None:
        """How many jobs have not ended; None if Postgres does not answer."""
        with suppress(DatabaseError):
            return self._ask("embedded/count_open")
        return None

    def requeue(self, charged: Sequence[UUID] = (), machine_uptime: float | None = None) -> int:
        """Queue running and dispatched jobs again without charging a failure; returns how many ran.

        Jobs in `charged` are charged with an engine's death, which quarantines them. Jobs claimed more than
        `machine_uptime` seconds ago were lost with the machine (None: no machine was lost), which the first times costs
        them nothing. Call this only while no worker can run; otherwise, jobs of that worker would run twice.
        """
        return self._ask("embedded/requeue", charged=list(charged), uptime=machine_uptime)

    def release(self, engine: str | None, pid: int) -> bool:
        """Queue the jobs of an ended worker again; returns whether Postgres answered. `engine`: its name, if any."""
        worker = f"{socket.gethostname()}:{pid}:"  # the beginning of its name, by `worker/celery/app.py`
        try:
            with within(RELEASE_SECONDS):
                jobs = self._ask("embedded/release", worker=worker, engine=engine)
        except DatabaseError as error:
            log.warning("the jobs of the worker with process id %d cannot be released yet: %s", pid, error)
            return False
        log.warning("%d jobs of the worker with process id %d are released", jobs, pid)
        return True

    def requeue_killed(self, begun: Begun) -> int:
        """Requeue after a stack was killed, and charge the jobs that its engines had begun.

        If the machine has restarted since, it lost power or was rebooted, and the first times no job is charged.
        """
        seconds = uptime()
        with reaching(self._settings), self._engine.connect() as connection:
            rows = connection.execute(statement("embedded/running"), {"uptime": seconds}).all()
        charged = []
        for row in rows:
            request_ids = [f"{row.id}.{row.attempt}.{number}" for number in range(MAX_CALLS)]  # as workers name them
            if begun(row.engine_session_id, request_ids):
                charged.append(row.id)
        return self.requeue(charged, seconds)

    def end_sessions(self) -> None:
        """End the engine sessions of a stack that was killed. An engine that survived opens its session again."""
        with reaching(self._settings), self._engine.begin() as connection:
            connection.execute(statement("queue/end_sessions"), {"silence_seconds": 0})

    def cancel(self) -> int:
        """Cancel all waiting jobs; returns how many."""
        return self._ask("embedded/cancel_open")

    def close(self) -> None:
        self._engine.dispose()

    def _ask(self, name: str, **values: object) -> int:
        with reaching(self._settings), self._engine.begin() as connection:
            return int(connection.execute(statement(name), values).scalar_one())


def uptime() -> float:
    """Seconds since this machine was started, or since 1970 if that is unknown."""
    try:
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    except (AttributeError, OSError):
        return time.time()
