"""`Listener`: a producer's connection that listens for the ends of jobs while callers wait for some.

It exists only while there are waiters, and for `IDLE_SECONDS` after. A notification lists ids of jobs that ended and is
only a hint: a waiter reads the job itself, and polls as well, rarely while the connection listens and often while it
does not, as behind a pooler in transaction mode.
"""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from uuid import UUID

import psycopg
from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError

from thothy_ai.db.connect import make_engine
from thothy_ai.db.driver import accepts_no_writes, wait_readable
from thothy_ai.db.fragments import FINISHED
from thothy_ai.errors import DatabaseUnreachableError, ThothyError
from thothy_ai.settings import Settings

logger = logging.getLogger(__name__)

IDLE_SECONDS = 10.0
MIN_PAUSE, MAX_PAUSE = 0.5, 30.0  # before the next try, while the connection cannot be opened


class Waiter:
    """Jobs that a caller waits for. `wake` is called, on the listener's thread, when one of them may have ended."""

    def __init__(self, listener: Listener, ids: Iterable[UUID], wake: Callable[[], None]) -> None:
        self._listener = listener
        self.ids = frozenset(map(str, ids))
        self.wake = wake
        self.notified: set[UUID] = set()
        self.missed = False  # notifications may have been missed since the last `take`

    def listen(self) -> bool:
        """Start the listener unless it runs; returns whether it listens now."""
        return self._listener.start()

    def take(self) -> set[UUID] | None:
        """The jobs notified as ended since the last call; None if notifications may have been missed."""
        return self._listener.take(self)


class Listener:
    """Notifies waiters of jobs that have ended. Thread-safe."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._waiters: dict[str, list[Waiter]] = {}
        self._thread: threading.Thread | None = None
        self._listening = False
        self._closing = threading.Event()
        self._writer: socket.socket | None = None  # wakes the thread, which closes it at its end

    @contextmanager
    def waiting(self, ids: Iterable[UUID], wake: Callable[[], None]) -> Iterator[Waiter]:
        """Register these jobs until the end of the block."""
        waiter = Waiter(self, ids, wake)
        with self._lock:
            for key in waiter.ids:
                self._waiters.setdefault(key, []).append(waiter)
        try:
            yield waiter
        finally:
            with self._lock:
                for key in waiter.ids:
                    self._waiters[key].remove(waiter)
                    if not self._waiters[key]:
                        del self._waiters[key]

    def start(self) -> bool:
        """Start the thread, unless it runs or a pooler drops notifications; returns whether it listens."""
        if self._settings.database_pooler == "transaction" or self._closing.is_set():
            return False
        with self._lock:
            if self._thread is None:
                self._listening = False
                reader, self._writer = socket.socketpair()
                self._thread = threading.Thread(
                    target=self._run, args=(reader, self._writer), name="listener", daemon=True
                )
                self._thread.start()
            return self._listening

    def take(self, waiter: Waiter) -> set[UUID] | None:
        """The jobs notified as ended since this waiter last asked; None if notifications may have been missed."""
        with self._lock:
            notified, missed = waiter.notified, waiter.missed
            waiter.notified, waiter.missed = set(), False
        return None if missed else notified

    def close(self) -> None:
        """Stop listening; from any thread. Waiters poll."""
        self._closing.set()
        with self._lock:
            thread, writer = self._thread, self._writer
        if thread is not None and writer is not None:
            with suppress(OSError):  # the thread has just ended
                writer.send(b"\0")
            thread.join()

    def _run(self, reader: socket.socket, writer: socket.socket) -> None:
        """Listen until no one waits, and reconnect after an error. `reader` is readable once `close` was called."""
        pause = MIN_PAUSE
        with reader, writer:
            while not self._closing.is_set():
                try:
                    self._listen(reader)
                    break
                except (ThothyError, SQLAlchemyError, psycopg.Error, OSError) as error:
                    pause = MIN_PAUSE if self._set_listening(False) else min(2 * pause, MAX_PAUSE)
                    logger.warning("no notifications of ended jobs, polling for them: %s", type(error).__name__)
                    self._closing.wait(pause)

    def _listen(self, stopped: socket.socket) -> None:
        """Follow notifications until no one waits any more. Raises the driver's errors."""
        engine = make_engine(self._settings, application="producer", pool_size=1)
        connection = engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        try:
            connection.execute(text(f"LISTEN {self._settings.database_schema}_{FINISHED}"))
            driver = connection.connection.driver_connection
            assert isinstance(driver, psycopg.Connection)
            idle = False
            while not self._closing.is_set():
                if accepts_no_writes(driver):
                    raise DatabaseUnreachableError("the server accepts no writes: jobs end elsewhere")
                self._set_listening(True)
                ready = wait_readable([driver.fileno(), stopped.fileno()], IDLE_SECONDS)
                for note in driver.notifies(timeout=0):
                    self._notify(note.payload.split(","))
                if not ready:
                    if idle and self._end_if_unused():
                        return
                    connection.execute(text("SELECT"))  # whether the server still answers, and still accepts writes
                idle = not self._waiters
        finally:
            with suppress(SQLAlchemyError):
                connection.invalidate()  # it listens: not for reuse
                connection.close()
            engine.dispose()

    def _notify(self, ids: Iterable[str]) -> None:
        with self._lock:
            woken = [(waiter, key) for key in ids for waiter in self._waiters.get(key, ())]
            for waiter, key in woken:
                waiter.notified.add(UUID(key))
        for waiter in {waiter for waiter, _ in woken}:
            waiter.wake()

    def _set_listening(self, listening: bool) -> bool:
        """Returns whether it listened before. A change wakes every waiter: notifications may not have been received."""
        with self._lock:
            before, self._listening = self._listening, listening
            if before == listening:
                return before
            waiters = {waiter for several in self._waiters.values() for waiter in several}
            for waiter in waiters:
                waiter.missed = True
        for waiter in waiters:
            waiter.wake()
        return before

    def _end_if_unused(self) -> bool:
        with self._lock:
            if self._waiters:
                return False
            self._listening, self._thread = False, None
            return True
