"""`Books`: keeps the record of usage: closes hours (`usage_by_hour`), settles engine sessions, records drains.

An hour is closed an hour after its end: its attempts are summed once. A later change to an attempt (a settled session,
usage reported late) adds the difference to the hour, with its time. Each rule can run twice: the second run finds
nothing to do.
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

OPEN_HOURS = 1  # hours that an hour stays open after its end
USAGE_SECONDS = 5.0  # per run
HOURS_AT_ONCE = 6  # hours of a backlog per transaction
RESTATED = timedelta(hours=48)  # how far back heartbeats can add residency
SECONDS, PATIENT_SECONDS = 120, 3600
LIMITS = text(f"SET LOCAL lock_timeout = '1s'; SET LOCAL statement_timeout = '{SECONDS}s'")
# The figures of a drain of millions of jobs need several sorts, and nothing waits for them.
PATIENT = text(f"{LIMITS.text}; SET LOCAL statement_timeout = '{PATIENT_SECONDS}s'; SET LOCAL work_mem = '128MB'")
JOIN_SECONDS = 5.0  # that an ending process waits for the recording of a drain


class Books:
    """Owned by the reaper, on its own connection, so that these rules' locks do not depend on the leader's session."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._engine = make_engine(settings, application="books", pool_size=1, answer_seconds=SECONDS + ANSWER_MARGIN)
        self._drains = DrainRecords()
        self._recording: Thread | None = None
        self._failure: Exception | None = None  # of the last recording

    def usage(self) -> None:
        """Close the hours that are over; a long backlog takes several transactions and runs."""
        until, more = time.monotonic() + USAGE_SECONDS, True
        while more and time.monotonic() < until:
            with self._transaction() as connection:
                more = close_some(connection)

    def settle(self) -> None:
        """Settle the engine sessions that have ended."""
        with self._transaction() as connection:
            settle_sessions(connection)

    def drains(self) -> None:
        """Record the drains that ended since the last recorded one, on a thread, since leases must not wait for the
        figures of a large drain. Raises the last recording's error, so that the rule counts it.
        """
        if self._recording is None or not self._recording.is_alive():
            failure, self._failure = self._failure, None
            self._recording = Thread(target=self._record_drains, name="drains", daemon=True)
            self._recording.start()
            if failure is not None:
                raise failure

    def close(self) -> None:
        """Close the connections. The next leader records a drain whose recording this interrupts."""
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

    Two statements: the first one's locks must be held before the second one takes its snapshot.
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

    Two statements: the second one's snapshot has the usage that the first one waited for.
    """
    if ids := connection.execute(statement("queue/lock_sessions")).scalars().all():
        connection.execute(statement("queue/settle_sessions"), {"ids": ids})
