"""`SessionStore`: the registrar's access to Postgres."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncConnection

from thothy_ai.db.connect import SHORT_TRANSACTIONS, make_async_engine, reaching
from thothy_ai.db.statements import statement
from thothy_ai.errors import DatabaseUnreachableError
from thothy_ai.settings import Settings

ANSWER_SECONDS = 5.0  # for a statement, a lock that it waits for included


class LiveEngine(NamedTuple):
    """Another session of an engine with the same name, with the time of its last heartbeat."""

    id: UUID
    machine: str
    address: str
    heartbeat_at: datetime


class SessionStore:
    """Methods raise `DatabaseError`; nothing is written then."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._engine = make_async_engine(settings, application="registrar", pool_size=1, session=SHORT_TRANSACTIONS)

    async def register(self, row: dict[str, Any]) -> LiveEngine | None:
        """Record a session, unless another of that name may be alive; returns that one."""
        named = {"name": row["engine_name"]}
        async with self._transaction() as connection:
            await connection.execute(statement("worker/engine_name_lock"), named)
            taken = await connection.execute(statement("worker/engine_name_taken"), named | {"id": row["id"]})
            if (other := taken.one_or_none()) is not None:
                return LiveEngine(*other)
            await connection.execute(statement("worker/record_engine"), row)
            return None

    async def record(self, row: dict[str, Any]) -> None:
        """Record a session's state and counters, with a heartbeat."""
        async with self._transaction() as connection:
            await connection.execute(statement("worker/record_engine"), row)

    async def close(self) -> None:
        await self._engine.dispose()

    @asynccontextmanager
    async def _transaction(self) -> AsyncIterator[AsyncConnection]:
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                with reaching(self._settings):
                    async with self._engine.begin() as connection:
                        yield connection
        except TimeoutError:
            raise DatabaseUnreachableError(f"Postgres did not answer within {ANSWER_SECONDS:g} s") from None
