"""`EngineProbe`: this machine's engines for `thothy top`, each asked over its own address."""

from __future__ import annotations

import asyncio
import socket
import time
from collections import defaultdict
from contextlib import suppress

from sqlalchemy import Engine

from thothy_ai.admin.engine_state import EngineFigures, EngineMeter, engine_state
from thothy_ai.admin.engines import addresses
from thothy_ai.db.connect import make_engine, reaching
from thothy_ai.engine.api.errors import EngineLostError
from thothy_ai.errors import DatabaseError
from thothy_ai.settings import Settings


class EngineProbe:
    """Reads statistics over new connections each time: an engine may have been restarted. Close it.

    Asked are the engine of THOTHY_ENGINE_URL, and those that have registered themselves on this machine.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._url, self._token = settings.require_engine_url(), settings.reveal_engine_token()
        self._meters: defaultdict[str, EngineMeter] = defaultdict(EngineMeter)
        self._record: Engine | None = None
        if settings.database_url is not None:
            self._record = make_engine(settings, application="cli", pool_size=1)

    def read(self) -> EngineFigures:
        """The figures of this moment, of all engines that answer. Raises `EngineLostError` if none does."""
        return EngineFigures.together(asyncio.run(self._asked()))

    def close(self) -> None:
        """Close the connection to Postgres."""
        if self._record is not None:
            self._record.dispose()

    async def _asked(self) -> list[EngineFigures]:
        urls = list(dict.fromkeys((self._url, *self._others())))
        answers = await asyncio.gather(*(self._figures(url) for url in urls), return_exceptions=True)
        figures = [answer for answer in answers if isinstance(answer, EngineFigures)]
        for answer in answers:
            if isinstance(answer, BaseException) and not (figures and isinstance(answer, EngineLostError)):
                raise answer
        return figures

    async def _figures(self, url: str) -> EngineFigures:
        info, stats = await engine_state(url, self._token)
        return self._meters[url].measure(time.monotonic(), info, stats)

    def _others(self) -> list[str]:
        """Where engines of this machine listen; none while Postgres is away."""
        if self._record is not None:
            with suppress(DatabaseError), reaching(self._settings):
                return addresses(self._record, socket.gethostname())
        return []
