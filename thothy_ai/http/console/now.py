"""The page of the moment: the queue, its engines, and the last hour, kept live by one stream per page.

However many look, the sources are read once a second, by threads that run while anyone does.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from thothy_ai.admin.engines import EngineStatus, engines
from thothy_ai.admin.top.engines import EngineFigures, EngineSource
from thothy_ai.admin.top.polling import Poller, Unreachable
from thothy_ai.admin.top.queue import QueueSource, RecordFigures, WorkerFigures, WorkerSource
from thothy_ai.db.connect import make_engine, reaching
from thothy_ai.errors import ConfigError
from thothy_ai.http.console.sessions import Viewer
from thothy_ai.http.console.site import HEADERS, Site
from thothy_ai.settings import Settings

READ_SECONDS = 1.0  # between two readings of a source
LINGER_SECONDS = 20.0  # for which sources are read after the last viewer has left: pages are loaded again
FIRST_SECONDS = 2.0  # for the first readings
SESSION_SECONDS = 10.0  # between two looks whether a stream's session still holds
EVENT_HEADERS = {**HEADERS, "x-accel-buffering": "no"}  # nginx would collect events


class FleetSource:
    """Reads the registered engines from Postgres."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._engine = make_engine(settings, application="serve", pool_size=1)

    def read(self) -> list[EngineStatus]:
        with reaching(self._settings):
            return engines(self._engine)

    def close(self) -> None:
        self._engine.dispose()


class NowPage:
    """Owns the readings, which all viewers share."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._pollers: dict[str, Poller[Any]] = {}
        self._viewers = 0
        self._left_at = 0.0
        self._changed_at, self._part = -1.0, ""
        self.routes = [site.page("/now", self._show), site.page("/now/events", self._events)]

    def close(self) -> None:
        """Stop reading."""
        for poller in self._pollers.values():
            poller.stop(0.0)
        self._pollers = {}

    async def _show(self, request: Request, viewer: Viewer) -> Response:
        await self._begin()
        return self._site.render(request, viewer, "now.html", board=self._board())

    async def _events(self, request: Request, _: Viewer) -> Response:
        await self._begin()
        return StreamingResponse(self._stream(request), media_type="text/event-stream", headers=EVENT_HEADERS)

    async def _stream(self, request: Request) -> AsyncIterator[str]:
        """The page's live part whenever it may have changed, until the viewer leaves or their session ends."""
        self._viewers += 1
        looked_at = time.monotonic()
        try:
            while not self._site.ending:
                if time.monotonic() - looked_at > SESSION_SECONDS:
                    looked_at = time.monotonic()
                    if await self._site.viewer(request) is None:
                        return
                yield "".join(f"data: {line}\n" for line in self._latest().splitlines()) + "\n"
                await asyncio.sleep(READ_SECONDS)
        finally:
            self._viewers -= 1
            self._left_at = time.monotonic()
            asyncio.get_running_loop().call_later(LINGER_SECONDS, self._rest)

    def _latest(self) -> str:
        """The live part, rendered at most once per reading for all viewers."""
        now = time.monotonic()
        if now - self._changed_at >= READ_SECONDS / 2:
            self._changed_at, self._part = now, self._site.fragment("now_board.html", board=self._board())
        return self._part

    def _board(self) -> dict[str, Any]:
        record: RecordFigures | Unreachable = self._pollers["record"].latest
        workers: WorkerFigures | Unreachable = self._pollers["workers"].latest
        engine: EngineFigures | Unreachable = self._pollers["engine"].latest
        fleet: Sequence[EngineStatus] | Unreachable = self._pollers["fleet"].latest
        away = [
            (name, part.why)
            for name, part in (("Postgres", record), ("Redis", workers), ("The engine of this machine", engine))
            if isinstance(part, Unreachable)
        ]
        return {
            "record": None if isinstance(record, Unreachable) else record,
            "workers": None if isinstance(workers, Unreachable) else workers,
            "engine": None if isinstance(engine, Unreachable) else engine,
            "fleet": () if isinstance(fleet, Unreachable) else fleet,
            "away": away,
        }

    async def _begin(self) -> None:
        """Read the sources, if nobody has looked before."""
        if self._pollers:
            return
        settings = self._site.settings
        self._pollers = {
            "record": Poller(lambda: QueueSource(settings), READ_SECONDS),
            "workers": Poller(lambda: WorkerSource(settings), READ_SECONDS),
            "engine": Poller(lambda: _engine_source(settings), READ_SECONDS),
            "fleet": Poller(lambda: FleetSource(settings), READ_SECONDS),
        }
        for poller in self._pollers.values():
            poller.start()
        polled = [each.polled for each in self._pollers.values()]
        await asyncio.to_thread(lambda: [event.wait(FIRST_SECONDS / len(polled)) for event in polled])
        self._left_at = time.monotonic()
        asyncio.get_running_loop().call_later(LINGER_SECONDS, self._rest)

    def _rest(self) -> None:
        """Stop reading once nobody has looked for a while."""
        if not self._viewers and time.monotonic() - self._left_at >= LINGER_SECONDS - 0.5:
            self.close()


def _engine_source(settings: Settings) -> EngineSource:
    if settings.engine_url is None:
        raise ConfigError("THOTHY_ENGINE_URL is not set")
    return EngineSource(settings)
