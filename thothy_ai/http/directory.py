"""Where the fleet learns of engines: from the queue's records, or from a setting where there is no queue."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from sqlalchemy import Engine

from thothy_ai.db.connect import reaching
from thothy_ai.db.statements import statement
from thothy_ai.engine.api.errors import EngineError
from thothy_ai.engine.serving.client import connect
from thothy_ai.http.engines import Known
from thothy_ai.settings import Settings


class Registered:
    """Implements `Directory`: the ready engines, as they register themselves in Postgres."""

    def __init__(self, settings: Settings, database: Engine) -> None:
        self._settings, self._database = settings, database

    async def look(self) -> Collection[Known]:
        return await asyncio.to_thread(self._look)

    def _look(self) -> list[Known]:
        with reaching(self._settings), self._database.connect() as connection:
            rows = connection.execute(statement("http/engines")).all()
        return [
            Known(str(row.id), row.address, frozenset(row.models), row.capacity or self._settings.worker_in_flight)
            for row in rows
        ]


class Single:
    """Implements `Directory`: the engine at `THOTHY_ENGINE_URL`, where there is no database."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        token = settings.reveal_engine_token()
        self._url = settings.require_engine_url()
        self._client = connect(self._url, token)

    async def look(self) -> Collection[Known]:
        await self._client.start()
        try:
            info = await self._client.info()
        except EngineError:
            return ()
        return (Known(info.session_id, self._url, frozenset({info.model_name}), info.capacity or 1),)
