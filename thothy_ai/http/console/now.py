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
from thothy_ai.http.console.sessions import Viewer
from thothy_ai.http.console.site import HEADERS, SESSION_CHECK_SECONDS, Site, for_all_tenants
from thothy_ai.settings import Settings

READ_SECONDS = 1.0  # between two readings of a source
LINGER_SECONDS = 20.0  # for which sources are read after the last viewer has left: pages are loaded again
FIRST_SECONDS = 2.0  # for the first readings
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
        """Stop reading all of the sources."""
        for poller in self._pollers.values():
            poller.stop(0.0)
        self._pollers = {}

    async def _show(self, request: Request, viewer: Viewer) -> Response:
        for_all_tenants(viewer)
        await self._begin()
        return self._site.render(request, viewer, "now.html", board=self._board())

    async def _events(self, request: Request, viewer: Viewer) -> Response:
        for_all_tenants(viewer)
        await self._begin()
        return StreamingResponse(self._stream(request), media_type="text/event-stream", headers=EVENT_HEADERS)

    async def _stream(self, request: Request) -> AsyncIterator[str]:
        """The page's live part whenever it may have changed, until the viewer leaves or their session ends."""
        self._viewers += 1
        looked_at = time.monotonic()
        try:
            while not self._site.ending:
                if time.monotonic() - looked_at > SESSION_CHECK_SECONDS:
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
        resting = Unreachable("not read yet")
        latest: dict[str, Any] = {name: poller.latest for name, poller in self._pollers.items()}
        record: RecordFigures | Unreachable = latest.get("record", resting)
        workers: WorkerFigures | Unreachable = latest.get("workers", resting)
        engine: EngineFigures | Unreachable | None = latest.get("engine")
        fleet: Sequence[EngineStatus] | Unreachable = latest.get("fleet", resting)
        away = [
            (name, part.why)
            for name, part in (("Postgres", record), ("Redis", workers), ("The engine of this machine", engine))
            if isinstance(part, Unreachable)
        ]
        return {
            "record": None if isinstance(record, Unreachable) else record,
            "workers": None if isinstance(workers, Unreachable) else workers,
            "engine": None if isinstance(engine, Unreachable) else engine,
            "fleet": None if isinstance(fleet, Unreachable) else fleet,
            "away": away,
        }

    async def _begin(self) -> None:
        """Read the sources, if nobody has looked before."""
        settings = self._site.settings
        if not self._pollers:
            self._pollers = {
                "record": Poller(lambda: QueueSource(settings), READ_SECONDS),
                "workers": Poller(lambda: WorkerSource(settings), READ_SECONDS),
                "fleet": Poller(lambda: FleetSource(settings), READ_SECONDS),
            }
            if settings.engine_url is not None:
                self._pollers["engine"] = Poller(lambda: EngineSource(settings), READ_SECONDS)
            for poller in self._pollers.values():
                poller.start()
        polled = [each.polled for each in self._pollers.values()]
        if not all(event.is_set() for event in polled):
            await asyncio.to_thread(lambda: [event.wait(FIRST_SECONDS / len(polled)) for event in polled])
        self._left_at = time.monotonic()
        asyncio.get_running_loop().call_later(LINGER_SECONDS, self._rest)

    def _rest(self) -> None:
        """Stop reading once nobody has looked for a while."""
        if not self._viewers and time.monotonic() - self._left_at >= LINGER_SECONDS - 0.5:
            self.close()
