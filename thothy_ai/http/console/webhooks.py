"""Webhooks: their deliveries, and retries of failed ones."""

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
NAMES = {state: "failed" if state == "dead" else state for state in STATES}  # as the page shows them
MAX_RECORDED = 1_000  # ids of a change


class WebhookPages:
    """The pages of deliveries. A delivery belongs to its job's tenant."""

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
            request, viewer, "webhooks.html", counts=number, deliveries=found, state=state, shown=SHOWN, names=NAMES
        )

    async def retry(self, request: Request, viewer: Viewer, form: FormData) -> Response:
        engine, every = self._site.database, form.get("which") == "all"
        try:
            ids = [UUID(str(each)) for each in form.getlist("id")]
        except ValueError:
            raise ApiError(400, "id: expected the id of a delivery", code="invalid_value") from None
        if not ids and not every:
            raise ApiError(400, "no failed delivery is chosen: tick some, or choose all", code="nothing_chosen")
        target = "all failed deliveries" if every else f"{len(ids):,} {'delivery' if len(ids) == 1 else 'deliveries'}"
        async with self._site.recorded(viewer, "try webhooks again", target) as record:
            record.before = {"state": "dead"}
            tried = await self._site.read(lambda: retry(engine, None if every else ids, viewer.tenant))
            record.after = {"deliveries": len(tried), "ids": [str(each) for each in tried[:MAX_RECORDED]]}
        says = f"{len(tried):,} {'delivery is' if len(tried) == 1 else 'deliveries are'} tried again now"
        return self._site.done(request, f"{ROOT}/webhooks", says)
