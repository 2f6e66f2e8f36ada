"""`DoorRecord`: the door's access to Postgres, on its event loop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from thothy_ai.db.connect import SHORT_TRANSACTIONS, make_async_engine, reaching
from thothy_ai.db.statements import statement
from thothy_ai.settings import Settings


class DoorRecord:
    """A pool of connections, each statement in a transaction of its own."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._engine = make_async_engine(settings, application="serve", session=SHORT_TRANSACTIONS)

    async def ask(self, name: str, /, **parameters: object) -> Sequence[Any]:
        """The rows of the statement of this name. Raises `DatabaseError`."""
        with reaching(self._settings):
            async with self._engine.begin() as connection:
                done = await connection.execute(statement(name), parameters)
                return done.all() if done.returns_rows else ()

    async def close(self) -> None:
        await self._engine.dispose()
