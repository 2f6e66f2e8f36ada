"""`Listener`: one connection that listens for ended jobs while somebody in this process waits for some.

It belongs to a producer, and exists only while somebody waits, and for `IDLE_SECONDS` after. Notifications list ids of
jobs that ended; they are hints. A waiter reads the job itself, and polls as well: rarely while the connection listens,
often while it does not, as behind a pooler in transaction mode.
"""

from __future__ import annotations

import logging
import select
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any
from uuid import UUID

import psycopg
from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError

from thothy_ai.db.connect import make_engine
from thothy_ai.db.fragments import FINISHED
from thothy_ai.errors import ThothyError
from thothy_ai.settings import Settings

logger = logging.getLogger(__name__)

IDLE_SECONDS = 10.0
MIN_PAUSE, MAX_PAUSE = 0.5, 30.0  # before the next try, while the connection cannot be opened


class Waiting:
    """Jobs that somebody waits for. `wake` is called, on the listener's thread, when one of them may have ended."""

    def __init__(self, listener: Listener, ids: Iterable[UUID], wake: Callable[[], None]) -> None:
        self._listener = listener
        self.ids = frozenset(map(str, ids))
        self.wake = wake
        self.told: set[UUID] = set()
        self.missed = False

    def listen(self) -> bool:
        """Start the listener, unless it runs. Whether it listens at this moment."""
        return self._listener.start()

    def take(self) -> set[UUID] | None:
        """The jobs that are said to have ended since the last call; None if notifications may have been missed."""
        return self._listener.take(self)


class Listener:
    """Tells waiters which jobs have ended. Thread-safe."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._waiters: dict[str, list[Waiting]] = {}
        self._thread: threading.Thread | None = None
        self._listening = False
        self._closing = threading.Event()
        self._writer: socket.socket | None = None  # wakes the thread, which closes it at its end

    @contextmanager
    def waiting(self, ids: Iterable[UUID], wake: Callable[[], None]) -> Iterator[Waiting]:
        """Register these jobs until the end of the block."""
        waiting = Waiting(self, ids, wake)
        with self._lock:
            for key in waiting.ids:
                self._waiters.setdefault(key, []).append(waiting)
        try:
            yield waiting
        finally:
            with self._lock:
                self._forget(waiting)

    def start(self) -> bool:
        """Start the thread, unless it runs or notifications do not come this way. Whether it listens."""
        if self._settings.database_pooler == "transaction" or self._closing.is_set():
            return False
        with self._lock:
            if self._thread is None or not self._thread.is_alive():  # as after a fork
                self._listening = False
                reader, self._writer = socket.socketpair()
                self._thread = threading.Thread(
                    target=self._run, args=(reader, self._writer), name="listener", daemon=True
                )
                self._thread.start()
            return self._listening

    def take(self, waiting: Waiting) -> set[UUID] | None:
        """What `Waiting.take` returns."""
        with self._lock:
            told, missed = waiting.told, waiting.missed
            waiting.told, waiting.missed = set(), False
        return None if missed else told

    def close(self) -> None:
        """Stop listening; from any thread. Waiters poll."""
        self._closing.set()
        with self._lock:
            thread, writer = self._thread, self._writer
        if thread is not None and writer is not None:
            with suppress(OSError):  # it has just ended
                writer.send(b"\0")
            thread.join()

    def _forget(self, waiting: Waiting) -> None:
        for key in waiting.ids:
            others = [other for other in self._waiters[key] if other is not waiting]
            if others:
                self._waiters[key] = others
            else:
                del self._waiters[key]

    def _run(self, reader: socket.socket, writer: socket.socket) -> None:
        with reader, writer:
            self._until_unused(reader)

    def _until_unused(self, stopped: socket.socket) -> None:
        pause = MIN_PAUSE
        while not self._closing.is_set():
            try:
                self._listen(stopped)
                break
            except (ThothyError, SQLAlchemyError, psycopg.Error, OSError) as error:
                pause = MIN_PAUSE if self._set_listening(False) else min(2 * pause, MAX_PAUSE)
                logger.warning("no notifications of ended jobs, polling for them: %s", type(error).__name__)
                self._closing.wait(pause)

    def _listen(self, stopped: socket.socket) -> None:
        """Listen until nothing waits any more. Raises the driver's errors."""
        engine = make_engine(self._settings, application="producer", pool_size=1)
        connection = engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        try:
            connection.execute(text(f"LISTEN {self._settings.database_schema}_{FINISHED}"))
            driver = connection.connection.driver_connection
            assert isinstance(driver, psycopg.Connection)
            self._set_listening(True)
            self._follow(driver, stopped)
        finally:
            with suppress(SQLAlchemyError):
                connection.invalidate()  # it listens: not for reuse
                connection.close()
            engine.dispose()

    def _follow(self, driver: psycopg.Connection[Any], stopped: socket.socket) -> None:
        idle = False
        while not self._closing.is_set():
            ready, _, _ = select.select([driver.fileno(), stopped.fileno()], [], [], IDLE_SECONDS)
            for note in driver.notifies(timeout=0):
                self._tell(note.payload.split(","))
            if not ready and idle and self._end_if_unused():
                return
            idle = not self._waiters

    def _tell(self, ids: Iterable[str]) -> None:
        with self._lock:
            woken = [(waiting, key) for key in ids for waiting in self._waiters.get(key, ())]
            for waiting, key in woken:
                waiting.told.add(UUID(key))
        for waiting in {waiting for waiting, _ in woken}:
            waiting.wake()

    def _set_listening(self, listening: bool) -> bool:
        """Note it, and wake every waiter: what ended before was not told. Returns what it was."""
        with self._lock:
            before, self._listening = self._listening, listening
            waiters = {waiting for several in self._waiters.values() for waiting in several}
            for waiting in waiters:
                waiting.missed = True
        for waiting in waiters:
            waiting.wake()
        return before

    def _end_if_unused(self) -> bool:
        with self._lock:
            if self._waiters:
                return False
            self._listening, self._thread = False, None
            return True
