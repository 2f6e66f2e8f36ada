"""Webhooks: their deliveries, and another try for those that failed."""

from __future__ import annotations

from uuid import UUID

from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import Response

from thothy_ai.admin.webhooks import STATES, counts, deliveries, retry
from thothy_ai.http.console.sessions import Viewer
from thothy_ai.http.console.site import ROOT, Site
from thothy_ai.http.errors import ApiError

SHOWN = 100  # deliveries
MAX_RECORDED = 1_000  # ids of a change


class WebhookPages:
    """Deliveries, which belong to their jobs' tenants."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self.routes = [site.page("/webhooks", self.show), site.action("/webhooks/retry", self.retry)]

    async def show(self, request: Request, viewer: Viewer) -> Response:
        state = request.query_params.get("state") or None
        if state not in {None, *STATES}:
            raise ApiError(400, f"state: expected one of {', '.join(STATES)}", code="invalid_value")
        engine, tenant = self._site.database, viewer.tenant
        number, found = await self._site.read(
            lambda: (counts(engine, tenant), deliveries(engine, state=state, tenant=tenant, limit=SHOWN))
        )
        return self._site.render(
            request, viewer, "webhooks.html", counts=number, deliveries=found, state=state, shown=SHOWN
        )

    async def retry(self, request: Request, viewer: Viewer, form: FormData) -> Response:
        engine, tenant = self._site.database, viewer.tenant
        found = await self._site.read(lambda: deliveries(engine, state="dead", tenant=tenant, limit=10_000))
        ours = {each["id"] for each in found}
        try:
            wanted = [UUID(str(each)) for each in form.getlist("id")]
        except ValueError:
            raise ApiError(400, "id: expected the id of a delivery", code="invalid_value") from None
        ids = [each for each in wanted if each in ours] if form.get("which") != "all" else sorted(ours)
        if not ids:
            raise ApiError(400, "no failed delivery is chosen", code="nothing_chosen")
        async with self._site.recorded(viewer, "retry webhooks", f"{len(ids):,} deliveries") as record:
            number = await self._site.read(lambda: retry(engine, ids))
            record.before = {"state": "dead"}
            record.after = {"deliveries": number, "ids": [str(each) for each in ids[:MAX_RECORDED]]}
        return self._site.done(request, f"{ROOT}/webhooks", f"{number:,} deliveries are tried again now")
