"""Keys of the HTTP API: list, create and revoke them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import Response

from thothy_ai.db.api_keys import SCOPES, KeyLimits, create_key, id_of, revoke_key
from thothy_ai.http.console.sessions import Viewer, ViewerRole
from thothy_ai.http.console.site import ROOT, Site, is_valid
from thothy_ai.http.errors import ApiError
from thothy_ai.settings.values import check_tenant

NAME = re.compile(r"[^\x00-\x1f\x7f]{0,100}")
MAX_DAYS = 3650


class KeyPages:
    """Viewers of one tenant see and change that tenant's keys."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self.routes = [
            site.page("/keys", self._show, ViewerRole.OPERATOR),
            site.action("/keys/create", self._create),
            site.action("/keys/revoke", self._revoke),
        ]

    async def _show(self, request: Request, viewer: Viewer) -> Response:
        return await self._page(request, viewer, viewer.tenant or self._site.settings.tenant)

    async def _page(self, request: Request, viewer: Viewer, tenant: str, made: str | None = None) -> Response:
        """The keys that the viewer sees, and the one that was just made, which is shown this once."""
        known = (await self._site.keys()).values()
        keys = [key for key in known if viewer.sees(key.tenant)]
        return self._site.render(
            request, viewer, "keys.html", keys=keys, is_valid=is_valid, scopes=SCOPES, tenant=tenant, made=made
        )

    async def _create(self, request: Request, viewer: Viewer, form: FormData) -> Response:
        tenant, name = str(form.get("tenant", "")).strip(), str(form.get("name", "")).strip()
        scopes = [scope for scope in SCOPES if scope in form.getlist("scope")]
        try:
            check_tenant(tenant)
        except ValueError as error:
            raise ApiError(400, f"tenant: {error}", code="invalid_value") from None
        if not viewer.sees(tenant):
            raise ApiError(403, f"you may make keys of {viewer.tenant!r} only", code="tenant")
        if not scopes:
            raise ApiError(400, "scope: choose one or more", code="invalid_value")
        if not NAME.fullmatch(name):
            raise ApiError(400, "name: expected at most 100 characters, none a control character", code="invalid_value")
        until, limits = _expiry_in(form), KeyLimits(requests_per_minute=_whole_in(form, "requests_per_minute"))
        async with self._site.recorded(viewer, "create key", name or tenant) as record:
            made = await self._site.read(
                lambda: create_key(self._site.database, tenant, scopes, limits, name=name, expires_at=until)
            )
            record.after = {"id": id_of(made), "tenant": tenant, "scopes": scopes, "expires_at": until}
        return await self._page(request, viewer, tenant, made)

    async def _revoke(self, request: Request, viewer: Viewer, form: FormData) -> Response:
        key = (await self._site.keys()).get(str(form.get("id", "")))
        if key is None or not viewer.sees(key.tenant):
            raise ApiError(404, "there is no such key", code="not_found")
        async with self._site.recorded(viewer, "revoke key", key.id) as record:
            await self._site.read(lambda: revoke_key(self._site.database, key.id))
            record.before, record.after = {"tenant": key.tenant, "name": key.name}, {"revoked": True}
        return self._site.done(request, f"{ROOT}/keys", f"{key.name or key.id} is revoked, and refused within seconds")


def _whole_in(form: FormData, name: str) -> int | None:
    given = str(form.get(name, "")).strip()
    if not given:
        return None
    if len(given) > 10 or not given.isdecimal() or not 1 <= int(given) <= 10**9:
        raise ApiError(400, f"{name}: expected a whole number from 1 on", code="invalid_value")
    return int(given)


def _expiry_in(form: FormData) -> datetime | None:
    days = _whole_in(form, "days")
    if days is None:
        return None
    if days > MAX_DAYS:
        raise ApiError(400, f"days: expected at most {MAX_DAYS}", code="invalid_value")
    return datetime.now(UTC) + timedelta(days=days)
