"""`Leader`: makes one process of a role the leader. One Postgres connection carries the lock, the wake-ups and the
work, so that a process that loses the lock can no longer do the work.
"""

from __future__ import annotations

import logging
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

import psycopg
from sqlalchemy import Connection, text
from sqlalchemy.exc import SQLAlchemyError

from thothy_ai.db.connect import ANSWER_MARGIN, make_engine, reaching
from thothy_ai.db.driver import Connection as DriverConnection
from thothy_ai.db.driver import accepts_no_writes, wait_readable
from thothy_ai.db.statements import statement
from thothy_ai.errors import BrokerUnreachableError, DatabaseUnreachableError, ThothyError
from thothy_ai.queue import metrics
from thothy_ai.settings import Settings, endpoint

logger = logging.getLogger(__name__)

STANDBY_SECONDS = 1.0
MIN_PAUSE, MAX_PAUSE = 0.2, 5.0
SET_LIMITS = text("SELECT set_config('lock_timeout', :lock, FALSE), set_config('statement_timeout', :statement, FALSE)")
BEGIN_SNAPSHOT, END_SNAPSHOT = text("BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY"), text("ROLLBACK")
TRY_LOCK = text("SELECT pg_try_advisory_lock(hashtext(:role))")


class Leader:
    """Calls work repeatedly while this process leads `role`; stands by while another does.

    `session`: statements for each new connection. `channels`: a NOTIFY on these wakes it up; the channels of an
    installation, and its locks, begin with the name of its schema.
    """

    def __init__(
        self, settings: Settings, role: str, channels: Sequence[str] = (), session: Sequence[str] = ()
    ) -> None:
        self._settings = settings
        self._role = role
        self._opening = (*session, *(f"LISTEN {settings.database_schema}_{channel}" for channel in channels))
        self._engine = make_engine(settings, application=role, pool_size=1)
        self._connection: Connection | None = None
        self._leads = False
        self._leads_since = 0.0
        self._term = 0
        self._stopping = False
        self._wake_reader, self._wake_writer = socket.socketpair()
        self._wake_reader.setblocking(False)
        self._wake_writer.setblocking(False)

    def lead(self, work: Callable[[], float]) -> None:
        """Work until `stop`. `work` returns the seconds until its next call; a NOTIFY calls it earlier.

        While Postgres or Redis is unreachable, each failure is one line in the log, and is retried after a pause.
        """
        pause = MIN_PAUSE
        try:
            while not self._stopping:
                try:
                    seconds = STANDBY_SECONDS
                    if self._take_lead():
                        seconds = work()
                        metrics.LAST_ROUND.labels(self._role).set_to_current_time()
                    self._sleep(seconds)
                    pause = MIN_PAUSE
                except (ThothyError, SQLAlchemyError, psycopg.Error, OSError) as error:
                    logger.warning("%s: a round failed and is tried again: %s", self._role, error)
                    if not isinstance(error, BrokerUnreachableError):
                        self._disconnect()
                    if not self._stopping:
                        wait_readable([self._wake_reader.fileno()], pause)
                    pause = min(pause * 2, MAX_PAUSE)
        finally:
            self._disconnect()
            self._engine.dispose()
            self._wake_reader.close()
            self._wake_writer.close()

    @contextmanager
    def leading(self, work: Callable[[], float]) -> Iterator[None]:
        """`lead` on a thread of its own until the end of the block."""
        thread = threading.Thread(target=self.lead, args=(work,), name=self._role, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self.stop()
            thread.join()

    def ask(self, name: str, **parameters: object) -> Sequence[Any]:
        """The rows of the statement of this name, in a transaction of its own or that of `snapshot`.

        Raises `DatabaseError`.
        """
        with reaching(self._settings):
            done = self._connected().execute(statement(name), parameters)
            return done.all() if done.returns_rows else ()

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """A read-only transaction, in which every `ask` reads the database as it was at the first.

        Raises `DatabaseError`.
        """
        with reaching(self._settings):
            connection = self._connected()
            connection.execute(BEGIN_SNAPSHOT)
        try:
            yield
        finally:
            with suppress(SQLAlchemyError):  # a transaction ends with a connection that is lost
                connection.execute(END_SNAPSHOT)

    def limit(self, lock_seconds: float, statement_seconds: float) -> None:
        """Set time limits for later statements: for a wait for a lock, and in all.

        Raises `DatabaseError`.
        """
        limits = {"lock": f"{lock_seconds * 1000:.0f}ms", "statement": f"{statement_seconds * 1000:.0f}ms"}
        with reaching(self._settings):
            self._connected().execute(SET_LIMITS, limits)
            if (driver := self._driver()) is not None:
                driver.answer_seconds = statement_seconds + ANSWER_MARGIN

    @property
    def is_lost(self) -> bool:
        """Whether this leader's connection is lost, and the lead with it."""
        return (driver := self._driver()) is None or driver.closed

    @property
    def leads(self) -> bool:
        """Whether this process holds the lead."""
        return self._leads

    @property
    def term(self) -> int:
        """How often this process has become the leader."""
        return self._term

    @property
    def led_seconds(self) -> float:
        """How long this process has led over its current connection; 0 while it does not lead."""
        return time.monotonic() - self._leads_since if self._leads else 0.0

    def stop(self) -> None:
        """Stop at once; from any thread, or from a signal's handler."""
        self._stopping = True
        with suppress(OSError):
            self._wake_writer.send(b"\0")

    def stop_on_signals(self) -> None:
        """Stop on SIGTERM and SIGINT."""

        def handle(_: int, __: FrameType | None) -> None:
            self.stop()

        signal.signal(signal.SIGTERM, handle)
        signal.signal(signal.SIGINT, handle)

    def _take_lead(self) -> bool:
        if not self._leads:
            with reaching(self._settings):
                self._leads = bool(
                    self._connected().scalar(TRY_LOCK, {"role": f"{self._settings.database_schema}_{self._role}"})
                )
            metrics.LEADS.labels(self._role).set(self._leads)
            if self._leads:
                self._leads_since = time.monotonic()
                self._term += 1
                logger.info("%s: now leading", self._role)
        return self._leads

    def _connected(self) -> Connection:
        if self._connection is None:
            connection = self._engine.connect().execution_options(isolation_level="AUTOCOMMIT")
            for command in self._opening:
                connection.execute(text(command))
            self._connection = connection
        return self._connection

    def _disconnect(self) -> None:
        connection, self._connection, self._leads = self._connection, None, False
        metrics.LEADS.labels(self._role).set(0)
        if connection is not None:
            with suppress(SQLAlchemyError):
                connection.invalidate()  # it carries a lock and subscriptions: not for reuse
                connection.close()

    def _sleep(self, seconds: float) -> None:
        """Sleep until the deadline, a NOTIFY, or `stop`. Raises `DatabaseUnreachableError` when the connection is
        lost.
        """
        self._connected()
        driver = self._driver()
        if driver is None or accepts_no_writes(driver):
            raise DatabaseUnreachableError("the connection is gone, or its server accepts no writes any more")
        try:
            if not self._notified(driver):
                wait_readable([driver.fileno(), self._wake_reader.fileno()], seconds)
                self._notified(driver)
        except psycopg.Error as error:
            where = endpoint(self._settings.require_database_url())
            raise DatabaseUnreachableError(f"Postgres at {where} closed the connection: {error}") from error

    def _driver(self) -> DriverConnection | None:
        """The underlying psycopg connection; None while disconnected."""
        connection = self._connection
        if connection is None or connection.closed or connection.invalidated:
            return None
        driver = connection.connection.driver_connection
        return driver if isinstance(driver, DriverConnection) else None

    @staticmethod
    def _notified(driver: DriverConnection) -> bool:
        """Whether a NOTIFY has arrived. Consumes all of them, since one round of work serves them all."""
        return bool(list(driver.notifies(timeout=0)))
