"""A caller's own transaction: what `connection=` accepts, and how a producer's statements run in it.

They run under a savepoint, so that a failure leaves the caller's transaction as it was. They are never committed here.
Statements name the schema, so that the connection may have any search path.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, TypeAlias

from sqlalchemy import Connection
from sqlalchemy.exc import InvalidRequestError

from thothy_ai.errors import InvalidConnectionError

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session
    from sqlalchemy.orm import Session, scoped_session

    Given: TypeAlias = Connection | Session | scoped_session[Session]
    AsyncGiven: TypeAlias = AsyncConnection | AsyncSession | async_scoped_session[AsyncSession]


@contextmanager
def joined(given: Given) -> Iterator[Connection]:
    """The connection of the caller's transaction, with a savepoint that is released at the end.

    Raises `InvalidConnectionError` if there is no transaction to join.
    """
    from sqlalchemy.orm import Session, scoped_session  # noqa: PLC0415 - slow to import, and rarely needed

    with _usable():
        found: object = given.connection() if isinstance(given, Session | scoped_session) else given
        if not isinstance(found, Connection):
            raise InvalidConnectionError(f"{type(found).__name__} is neither a Connection nor a Session of SQLAlchemy")
        _check(found)
        with found.begin_nested() as savepoint:
            yield savepoint.connection


@asynccontextmanager
async def async_joined(given: AsyncGiven) -> AsyncIterator[AsyncConnection]:
    """The async version of `joined`."""
    from sqlalchemy.ext.asyncio import (  # noqa: PLC0415 - slow to import, and rarely needed
        AsyncConnection,
        AsyncSession,
        async_scoped_session,
    )

    with _usable():
        found: object = await given.connection() if isinstance(given, AsyncSession | async_scoped_session) else given
        if not isinstance(found, AsyncConnection):
            raise InvalidConnectionError(f"{type(found).__name__} is neither an AsyncConnection nor an AsyncSession")
        await found.run_sync(_check)
        async with found.begin_nested():
            yield found


def _check(connection: Connection) -> None:
    if connection.dialect.name != "postgresql":
        raise InvalidConnectionError(f"is one to {connection.dialect.name}: jobs are in Postgres")
    if getattr(connection.connection.dbapi_connection, "autocommit", False):
        raise InvalidConnectionError("is in autocommit mode: it has no transaction to enqueue in")


@contextmanager
def _usable() -> Iterator[None]:
    """Translate SQLAlchemy's error for a closed connection, or for a session that waits for a rollback."""
    try:
        yield
    except InvalidRequestError as error:
        raise InvalidConnectionError(str(error).splitlines()[0]) from error
