"""The audit log: who changed what in the console, when, and the state before."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from uuid import UUID

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from thothy_ai.db.statements import statement
from thothy_ai.http.console.sessions import Viewer
from thothy_ai.http.console.site import HEADERS, Site
from thothy_ai.http.errors import ApiError

PAGE = 100  # changes
MAX_EXPORTED = 100_000


class ChangeLog:
    """Viewers of one tenant see what viewers of that tenant changed."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self.routes = [site.page("/changes", self.show), site.page("/changes.jsonl", self.export)]

    async def show(self, request: Request, viewer: Viewer) -> Response:
        try:
            after = UUID(given) if (given := request.query_params.get("after")) else None
        except ValueError:
            raise ApiError(400, "after: expected the id of a change", code="invalid_value") from None
        found = await self._site.read(lambda: self._read(viewer.tenant, after, PAGE + 1))
        more = found[PAGE - 1]["id"] if len(found) > PAGE else None
        return self._site.render(request, viewer, "changes.html", changes=found[:PAGE], more=more)

    async def export(self, _: Request, viewer: Viewer) -> Response:
        found = await self._site.read(lambda: self._read(viewer.tenant, None, MAX_EXPORTED))
        headers = {**HEADERS, "content-disposition": 'attachment; filename="changes.jsonl"'}

        def lines() -> Iterator[str]:
            for each in found:
                yield json.dumps(each, ensure_ascii=False, default=str) + "\n"

        return StreamingResponse(lines(), media_type="application/jsonl", headers=headers)

    def _read(self, tenant: str | None, after: UUID | None, limit: int) -> list[dict[str, Any]]:
        with self._site.database.connect() as connection:
            wanted = {"tenant": tenant, "after_id": after, "limit": limit}
            return [dict(row._mapping) for row in connection.execute(statement("http/audit_log"), wanted)]
