"""`Books`: keeps the record of what was used: closes hours (`usage_by_hour`), settles engine sessions, records drains.

An hour is closed an hour after its end: its attempts are summed once. What changes an attempt later (a session that is
settled, usage that is reported late) adds the difference to the hour and says when. Each rule may run twice: the second
run finds nothing to do.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from threading import Thread

from sqlalchemy import Connection, Engine, TextClause, text

from thothy_ai.db.connect import ANSWER_MARGIN, make_engine, reaching
from thothy_ai.db.driver import within
from thothy_ai.db.statements import statement
from thothy_ai.queue.drain_records import DrainRecords
from thothy_ai.settings import Settings

logger = logging.getLogger(__name__)

OPEN_HOURS = 1  # an hour stays open that long after its end
USAGE_SECONDS = 5.0  # in one run
HOURS_AT_ONCE = 6  # of a backlog, in one transaction
RESTATED = timedelta(hours=48)  # how far back an engine's heartbeat may say that it was resident
SECONDS, PATIENT_SECONDS = 120, 3600
LIMITS = text(f"SET LOCAL lock_timeout = '1s'; SET LOCAL statement_timeout = '{SECONDS}s'")
# A drain of millions of jobs is sorted a few times, while nothing waits for it.
PATIENT = text(f"{LIMITS.text}; SET LOCAL statement_timeout = '{PATIENT_SECONDS}s'; SET LOCAL work_mem = '128MB'")
JOIN_SECONDS = 5.0  # that a process which ends waits for a drain that is being recorded


class Books:
    """Owned by the reaper, on a connection of its own: what these rules lock must not wait for the leader's session."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._engine = make_engine(settings, application="books", pool_size=1, answer_seconds=SECONDS + ANSWER_MARGIN)
        self._drains = DrainRecords()
        self._recording: Thread | None = None
        self._failure: Exception | None = None  # of the last recording

    def usage(self) -> None:
        """Close the hours that are over; a long backlog in several transactions, and in several runs."""
        until, more = time.monotonic() + USAGE_SECONDS, True
        while more and time.monotonic() < until:
            with self._transaction() as connection:
                more = close_some(connection)

    def settle(self) -> None:
        """Settle the engine sessions that have ended."""
        with self._transaction() as connection:
            settle_sessions(connection)

    def drains(self) -> None:
        """Record the drains that ended since the last one that is recorded: on a thread, since leases must not wait for
        the figures of a large one. Raises what the last recording failed of, so that the rule counts it.
        """
        if self._recording is None or not self._recording.is_alive():
            failure, self._failure = self._failure, None
            self._recording = Thread(target=self._record_drains, name="drains", daemon=True)
            self._recording.start()
            if failure is not None:
                raise failure

    def close(self) -> None:
        """Close the connections. A drain that is being recorded then is recorded by the next leader."""
        if self._recording is not None:
            self._recording.join(JOIN_SECONDS)
        self._engine.dispose()

    def _record_drains(self) -> None:
        try:
            with within(PATIENT_SECONDS + ANSWER_MARGIN), self._transaction(PATIENT) as connection:
                for drain in self._drains.record(connection, self._settings.drain_gap_seconds):
                    jobs = drain.succeeded + drain.dead + drain.cancelled + drain.expired
                    logger.info("drain from %s to %s; jobs: %d", drain.started_at, drain.ended_at, jobs)
        except Exception as error:  # noqa: BLE001 - raised by the rule's next run, which counts it
            self._failure = error

    @contextmanager
    def _transaction(self, limits: TextClause = LIMITS) -> Iterator[Connection]:
        with reaching(self._settings), self._engine.begin() as connection:
            connection.execute(limits)
            yield connection


def close_hours(engine: Engine, *, open_hours: int = OPEN_HOURS) -> bool:
    """Close all hours that ended `open_hours` ago; returns whether there were any."""
    closed = False
    while True:
        with engine.begin() as connection:
            if not close_some(connection, open_hours=open_hours):
                return closed
            closed = True


def close_some(connection: Connection, *, open_hours: int = OPEN_HOURS, most: int = HOURS_AT_ONCE) -> bool:
    """Close at most `most` hours that ended `open_hours` ago, in this transaction; returns whether any was closed.

    Two statements: what the first one locks must be locked before the second one's snapshot is taken.
    """
    wanted = {"hours": most, "open_hours": open_hours}
    row = connection.execute(statement("queue/lock_hours"), wanted).one_or_none()
    if row is None:
        return False
    connection.execute(statement("queue/close_hours"), row._asdict())
    connection.execute(statement("queue/restate_residency"), {"since": row.since - RESTATED, "until": row.since})
    return True


def settle_sessions(connection: Connection) -> None:
    """Settle the engine sessions that have ended, in this transaction.

    Two statements: usage that the first one waits for is in the second one's snapshot.
    """
    if ids := connection.execute(statement("queue/lock_sessions")).scalars().all():
        connection.execute(statement("queue/settle_sessions"), {"ids": ids})
