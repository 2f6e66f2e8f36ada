"""Keys of the HTTP API: list, create and revoke them; and who is signed in, by a key or a link."""

from __future__ import annotations

import re
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from uuid import UUID

from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import Response

from thothy_ai.db.api_keys import SCOPES, USUAL, ApiKey, KeyLimits, create_key, id_of, list_keys, revoke_key
from thothy_ai.http.console.sessions import Viewer, ViewerRole
from thothy_ai.http.console.site import ROOT, Site, is_valid
from thothy_ai.http.errors import ApiError
from thothy_ai.settings.values import check_tenant

NAME = re.compile(r"[^\x00-\x1f\x7f]{0,100}")
MAX_DAYS = 3650
MOST = {"requests_per_minute": 10**9, "tokens_per_minute": 10**12, "concurrent_requests": 10**6, "days": MAX_DAYS}
SECONDS = "interactive_seconds_per_day"
MAX_SECONDS = 1e9
SHOWN = 200  # sessions


class KeyPages:
    """Viewers of one tenant see and change that tenant's keys."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self.routes = [
            site.page("/keys", self.show, ViewerRole.OPERATOR),
            site.action("/keys/create", self.create),
            site.action("/keys/ask", self.ask),
            site.action("/keys/revoke", self.revoke),
            site.action("/keys/sign-out", self.sign_out),
        ]

    async def show(self, request: Request, viewer: Viewer) -> Response:
        return await self._page(request, viewer, viewer.tenant or self._site.settings.tenant)

    async def _page(self, request: Request, viewer: Viewer, tenant: str, made: str | None = None) -> Response:
        """The page of the keys that the viewer sees. A key that was just made is shown this once."""
        known = (await self._site.read(self._read)).values()
        sessions = await self._site.read(lambda: self._site.sessions.open(viewer.tenant, SHOWN))
        return self._site.render(
            request,
            viewer,
            "keys.html",
            keys=[key for key in known if viewer.sees(key.tenant)],
            is_valid=is_valid,
            scopes=SCOPES,
            usual=USUAL,
            tenant=tenant,
            made=made,
            sessions=sessions,
            shown=SHOWN,
        )

    async def create(self, request: Request, viewer: Viewer, form: FormData) -> Response:
        tenant, name = str(form.get("tenant", "")).strip(), str(form.get("name", "")).strip()
        scopes = [str(scope) for scope in form.getlist("scope")]
        try:
            check_tenant(tenant)
        except ValueError as error:
            raise ApiError(400, f"tenant: {error}", code="invalid_value") from None
        if not viewer.sees(tenant):
            raise ApiError(403, f"you may make keys of {viewer.tenant!r} only", code="tenant")
        if not scopes or not set(scopes) <= set(SCOPES):
            raise ApiError(400, f"scope: choose one or more of {', '.join(SCOPES)}", code="invalid_value")
        if not NAME.fullmatch(name):
            raise ApiError(400, "name: expected at most 100 characters, none a control character", code="invalid_value")
        limits = KeyLimits(
            _whole_in(form, "requests_per_minute"),
            _whole_in(form, "tokens_per_minute"),
            _whole_in(form, "concurrent_requests"),
            _seconds_in(form),
        )
        days = _whole_in(form, "days")
        until = None if days is None else datetime.now(UTC) + timedelta(days=days)
        async with self._site.recorded(viewer, "create key", name or tenant) as record:
            made = await self._site.read(
                lambda: create_key(self._site.database, tenant, scopes, limits, name=name, expires_at=until)
            )
            record.after = {
                "id": id_of(made),
                "tenant": tenant,
                "scopes": scopes,
                "expires_at": until,
                **asdict(limits),
            }
        return await self._page(request, viewer, tenant, made)

    async def ask(self, request: Request, viewer: Viewer, form: FormData) -> Response:
        """Ask for confirmation before a key is revoked."""
        return self._site.render(request, viewer, "keys_ask.html", key=await self._chosen(viewer, form))

    async def revoke(self, request: Request, viewer: Viewer, form: FormData) -> Response:
        key = await self._chosen(viewer, form)
        async with self._site.recorded(viewer, "revoke key", key.id) as record:
            await self._site.read(lambda: revoke_key(self._site.database, key.id))
            before = {
                "tenant": key.tenant,
                "name": key.name,
                "scopes": sorted(key.scopes),
                "revoked_at": key.revoked_at,
            }
            record.before, record.after = before, {"revoked": True}
        return self._site.done(request, f"{ROOT}/keys", f"{key.name or key.id} is revoked, and refused within seconds")

    async def _chosen(self, viewer: Viewer, form: FormData) -> ApiKey:
        key = (await self._site.read(self._read)).get(str(form.get("id", "")))
        if key is None or not viewer.sees(key.tenant):
            raise ApiError(404, "there is no such key", code="not_found")
        return key

    def _read(self) -> dict[str, ApiKey]:
        """All keys by id, including those made a moment ago."""
        with self._site.database.connect() as connection:
            return {key.id: key for key in list_keys(connection)}

    async def sign_out(self, request: Request, viewer: Viewer, form: FormData) -> Response:
        """End one session, or all sessions of a key. The key stays valid."""
        key, given = str(form.get("key", "")) or None, str(form.get("session", ""))
        try:
            session = UUID(given) if given else None
        except ValueError:
            raise ApiError(400, "session: expected the id of a session", code="invalid_value") from None
        if (key is None) == (session is None):
            raise ApiError(400, "expected a session, or a key whose sessions are to end", code="invalid_value")
        async with self._site.recorded(viewer, "end sessions", key or given) as record:
            sessions, tenant = self._site.sessions, viewer.tenant
            names = await self._site.read(lambda: sessions.end(session=session, key=key, tenant=tenant))
            record.before, record.after = {"signed_in": names}, {"signed_in": []}
        says = f"{len(names):,} {'session is' if len(names) == 1 else 'sessions are'} over within seconds"
        return self._site.done(request, f"{ROOT}/keys", says)


def _whole_in(form: FormData, name: str) -> int | None:
    """An optional whole number of a form."""
    given, most = str(form.get(name, "")).strip(), MOST[name]
    if not given:
        return None
    if not given.isascii() or not given.isdecimal() or len(given) > 13 or not 1 <= int(given) <= most:
        raise ApiError(400, f"{name}: expected a whole number from 1 to {most:,}", code="invalid_value")
    return int(given)


def _seconds_in(form: FormData) -> float | None:
    if not (given := str(form.get(SECONDS, "")).strip()):
        return None
    try:
        seconds = float(given)
    except ValueError:
        seconds = 0.0
    if not 0.001 <= seconds <= MAX_SECONDS:  # NaN is neither
        raise ApiError(400, f"{SECONDS}: expected a number from 0.001 to {MAX_SECONDS:,.0f}", code="invalid_value")
    return seconds
