"""psycopg connections with bounded waits that notice when a server no longer accepts writes.

The kernel acknowledges what a stopped server or pooler never reads, so that neither TCP's timeouts nor Postgres' own
end a wait. Here every wait ends: at the limit of its connection, or with the block of `within` that it is in.
"""

from __future__ import annotations

import asyncio
import select
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, Final, Self, TypeVar, cast

import psycopg
from psycopg import errors
from psycopg.abc import AdaptContext, Buffer, PQGen, PQGenConn
from psycopg.adapt import Loader
from psycopg.pq import TransactionStatus
from psycopg.waiting import wait_async
from sqlalchemy.pool import AsyncAdaptedQueuePool, QueuePool

T = TypeVar("T")

INTERVAL = 0.1  # seconds between two looks for Ctrl-C; psycopg's default
MIN_WAIT = 0.2  # to end a transaction whose last statement was answered just in time
POOL_SECONDS = 30.0  # until a connection comes free

_deadline: ContextVar[float | None] = ContextVar("database_deadline", default=None)  # of time.monotonic()


@contextmanager
def within(seconds: float | None) -> Iterator[None]:
    """Statements in this block are answered within `seconds`, or fail as with an unreachable server.

    It takes the place of the limits that connections have; None leaves them. An inner block cannot extend an outer one.
    """
    if seconds is None:
        yield
        return
    outer, deadline = _deadline.get(), time.monotonic() + seconds
    token = _deadline.set(deadline if outer is None else min(outer, deadline))
    try:
        yield
    finally:
        _deadline.reset(token)


def seconds_left(limit: float | None) -> float | None:
    """Seconds for the next wait; outside of `within`, `limit` holds. None: no bound."""
    deadline = _deadline.get()
    return limit if deadline is None else max(deadline - time.monotonic(), MIN_WAIT)


def accepts_no_writes(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> bool:
    """Whether the server's last answer reported a standby, or a demoted primary.

    Postgres reports both parameters with every change since version 14.
    """
    reported = connection.info.parameter_status
    return "on" in (reported("in_hot_standby"), reported("default_transaction_read_only"))


class MomentLoader(Loader):
    """Loads every time that Postgres stores: one beyond Python's calendar, or infinite, as its first or last moment."""

    TYPE: Final = "timestamptz"
    FIRST: Final = datetime.min.replace(tzinfo=UTC)
    LAST: Final = datetime.max.replace(tzinfo=UTC)
    _exact = psycopg.adapters.get_loader(psycopg.adapters.types[TYPE].oid, psycopg.pq.Format.TEXT)

    def __init__(self, oid: int, context: AdaptContext | None = None) -> None:
        super().__init__(oid, context)
        self._load = cast("type[Loader]", self._exact)(oid, context).load

    def load(self, data: Buffer) -> datetime:
        try:
            return cast("datetime", self._load(data))
        except psycopg.DataError:
            past = bytes(data).startswith(b"-") or bytes(data).endswith(b"BC")
            return self.FIRST if past else self.LAST


def wait_readable(descriptors: Iterable[int], seconds: float) -> bool:
    """Wait at most this long; returns whether a descriptor became readable. Unlike `select`, it takes descriptors above
    1,023.
    """
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(max(0.0, seconds) * 1000))


class _Bounded:
    """Shared by blocking and asynchronous connections. `answer_seconds` limits each wait; None is no limit."""

    answer_seconds: float | None = None
    pgconn: psycopg.pq.abc.PGconn

    @classmethod
    def _connect_gen(cls, conninfo: str = "") -> PQGenConn[Self]:
        """Connect, but no longer than `within` allows: `connect_timeout` counts whole seconds from 2."""
        steps: PQGenConn[Self] = super()._connect_gen(conninfo)  # type: ignore[misc]
        waiting_for = next(steps)
        try:
            while True:
                ready = yield waiting_for
                deadline = _deadline.get()
                if deadline is not None and time.monotonic() >= deadline:
                    raise errors.ConnectionTimeout("connection timeout expired")
                waiting_for = steps.send(ready)
        except StopIteration as end:
            connected: Self = end.value
            return connected
        finally:
            steps.close()

    def _own_limit(self, timeout: float | None) -> float | None:
        """Seconds after which a wait gives up; None where the `timeout` of psycopg's own caller comes first."""
        limit = seconds_left(self.answer_seconds)
        return limit if limit is not None and (timeout is None or limit < timeout) else None

    def _leave_statement(self) -> None:
        """After an interruption, close the connection if it still waits for an answer. SQLAlchemy then drops it."""
        if self.pgconn.transaction_status == TransactionStatus.ACTIVE:
            self.pgconn.finish()

    def _give_up(self, seconds: float) -> psycopg.OperationalError:
        self.pgconn.finish()  # an answer that comes now would be taken for the next statement's
        return psycopg.OperationalError(f"no answer within {seconds:.3g} s")


class Connection(_Bounded, psycopg.Connection[Any]):
    """A blocking connection whose waits end."""

    def wait(self, gen: PQGen[T], interval: float = INTERVAL, timeout: float | None = None) -> T:
        """Raises `OperationalError`, and closes the connection, when the limit has passed."""
        limit = self._own_limit(timeout)
        try:
            return super().wait(gen, interval, timeout if limit is None else limit)
        except errors._WaitTimeout:
            if limit is None:
                raise
            raise self._give_up(limit) from None
        except BaseException as error:
            # For Ctrl-C, psycopg has cancelled the statement. It does not know other interruptions, such as a stop.
            if not isinstance(error, Exception):
                self._leave_statement()
            raise


class AsyncConnection(_Bounded, psycopg.AsyncConnection[Any]):
    """A connection on an event loop whose waits end."""

    async def wait(self, gen: PQGen[T], interval: float = INTERVAL, timeout: float | None = None) -> T:  # noqa: ASYNC109 - psycopg's signature
        """Raises `OperationalError`, and closes the connection, when the limit has passed."""
        limit = self._own_limit(timeout)
        seconds = timeout if limit is None else limit
        try:
            return await wait_async(gen, self.pgconn.socket, interval=interval, timeout=seconds)
        except errors._WaitTimeout:
            if limit is None:
                raise
            raise self._give_up(limit) from None
        except asyncio.CancelledError:
            self._leave_statement()  # psycopg would ask the server to cancel it, and wait for that
            raise


class _BoundedQueue:
    """SQLAlchemy's pools have one timeout for all callers; here each one's own limit holds, too."""

    @property
    def _timeout(self) -> float:
        left = seconds_left(POOL_SECONDS)
        return POOL_SECONDS if left is None else min(left, POOL_SECONDS)

    @_timeout.setter
    def _timeout(self, _: float) -> None:
        pass


class Pool(_BoundedQueue, QueuePool):
    """Connections for threads, each used by one at a time."""


class AsyncPool(_BoundedQueue, AsyncAdaptedQueuePool):
    """Connections for the tasks of an event loop."""
