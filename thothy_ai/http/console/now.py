"""The overview page: the queue, its engines, late jobs, firing alarms, and today's yield."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator

from starlette.requests import Request
from starlette.responses import Response

from thothy_ai.http.console.readings import READ_SECONDS
from thothy_ai.http.console.sessions import Viewer
from thothy_ai.http.console.site import Site, beats, for_all_tenants


class NowPage:
    """Renders the readings once for all of its viewers."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._made_at, self._board = -1.0, ""
        self.routes = [site.page("/now", self.show), site.page("/now/events", self.events)]

    async def show(self, request: Request, viewer: Viewer) -> Response:
        for_all_tenants(viewer)
        await self._site.readings.begin()
        return self._site.render(request, viewer, "now.html", now=self._site.readings)

    async def events(self, request: Request, viewer: Viewer) -> Response:
        for_all_tenants(viewer)
        return await self._site.stream(request, viewer, self._parts())

    async def _parts(self) -> AsyncIterator[str | None]:
        shown = ""
        async for _ in beats():
            now = time.monotonic()
            if now - self._made_at >= READ_SECONDS / 2:
                self._made_at = now
                self._board = self._site.fragment("now_part.html", now=self._site.readings)
            yield self._board if self._board != shown else None
            shown = self._board
