"""The fleet's directory of engines: the queue's records or, without a queue, a setting."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from sqlalchemy import Engine

from thothy_ai.db.connect import reaching
from thothy_ai.db.statements import statement
from thothy_ai.http.engines import Known
from thothy_ai.http.threads import KEEPERS
from thothy_ai.settings import Settings


class Registered:
    """Implements `Directory`: the live engines, as they register themselves in Postgres."""

    def __init__(self, settings: Settings, database: Engine) -> None:
        self._settings, self._database = settings, database
        self._tokens, self._token = settings.reveal_engine_tokens(), settings.reveal_engine_token()

    async def look(self) -> Collection[Known]:
        return await asyncio.get_running_loop().run_in_executor(KEEPERS, self._look)

    def _look(self) -> list[Known]:
        with reaching(self._settings), self._database.connect() as connection:
            rows = connection.execute(statement("http/engines")).all()
        return [
            Known(
                str(row.id),
                row.address,
                frozenset(row.models),
                row.capacity or self._settings.worker_in_flight,
                self._tokens.get(row.engine_name, self._token),
                row.model_name,
                {name: of for name, of in row.models.items() if of != row.model_name},
                row.ready,
            )
            for row in rows
        ]


class Single:
    """Implements `Directory`: the engine at `THOTHY_ENGINE_URL`, where there is no database."""

    def __init__(self, settings: Settings) -> None:
        url, token = settings.require_engine_url(), settings.reveal_engine_token()
        self._known = Known("", url, capacity=settings.worker_in_flight, token=token)

    async def look(self) -> Collection[Known]:
        return (self._known,)
