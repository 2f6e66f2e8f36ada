"""The console as an ASGI application: signing in and out, static files, and all pages."""

from __future__ import annotations

import logging
import time
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.types import Message, Receive, Scope, Send

from thothy_ai.db.api_keys import id_of
from thothy_ai.db.connect import make_engine
from thothy_ai.errors import DatabaseError, DatabaseUnreachableError
from thothy_ai.http.access import header, is_of_another_page
from thothy_ai.http.console.assets import assets
from thothy_ai.http.console.changes import ChangeLog
from thothy_ai.http.console.dead import DeadPages
from thothy_ai.http.console.drains import DrainPages
from thothy_ai.http.console.fleet import FleetPages
from thothy_ai.http.console.jobs import JobPages
from thothy_ai.http.console.keys import KeyPages
from thothy_ai.http.console.models import ModelPages
from thothy_ai.http.console.now import NowPage
from thothy_ai.http.console.review import ReviewPages
from thothy_ai.http.console.runbooks import RunbookPages
from thothy_ai.http.console.sessions import COOKIE, Viewer, check_csrf, viewer_of_key
from thothy_ai.http.console.site import (
    HEADERS,
    MAX_FORM,
    PAGE_SECONDS,
    PAGE_SESSION,
    ROOT,
    Site,
    back_to,
    beats,
    is_valid,
)
from thothy_ai.http.console.webhooks import WebhookPages
from thothy_ai.http.errors import ApiError
from thothy_ai.settings import Settings

log = logging.getLogger(__name__)

FORM_SECONDS = 30.0
TOO_LONG = "57014"  # Postgres' code for a statement that reached its limit


def _bounded(scope: Scope, receive: Receive) -> Receive:
    """Receives a form of bounded size and time from a page of this site; otherwise raises `ApiError`."""
    until, received = time.monotonic() + FORM_SECONDS, 0

    async def bounded() -> Message:
        nonlocal received
        kind = (header(scope, b"content-type") or "").partition(";")[0].strip().lower()
        if kind not in {"", "application/x-www-form-urlencoded"}:
            raise ApiError(415, f"expected a form, got {kind!r}", code="unsupported_media_type")
        if is_of_another_page(scope):
            raise ApiError(403, "a web page of another origin sent the form", code="origin_not_allowed")
        message = await receive()
        if message["type"] == "http.request":
            received += len(message.get("body", b""))
            if received > MAX_FORM:
                raise ApiError(413, f"the form has more than {MAX_FORM:,} bytes", code="request_too_large")
            if message.get("more_body") and time.monotonic() > until:
                raise ApiError(408, "the form did not arrive in time", code="request_timeout")
        return message

    return bounded


class Console:
    """Owns connections to Postgres and the pages with their state; `close` ends their streams."""

    def __init__(self, settings: Settings) -> None:
        self._database = make_engine(settings, application="serve", session=PAGE_SESSION)
        self.site = Site(settings, self._database)
        self._jobs = JobPages(self.site)
        parts = (
            NowPage(self.site),
            self._jobs,
            ReviewPages(self.site),
            DrainPages(self.site),
            FleetPages(self.site),
            ModelPages(self.site),
            DeadPages(self.site),
            WebhookPages(self.site),
            KeyPages(self.site),
            ChangeLog(self.site),
            RunbookPages(self.site),
        )
        self._app = Starlette(
            routes=[
                Route(ROOT, self.root, methods=["GET"]),
                Route(f"{ROOT}/sign-in", self.sign_in, methods=["GET"]),
                Route(f"{ROOT}/sign-in", self.check_key, methods=["POST"]),
                Route(f"{ROOT}/enter", self.enter, methods=["GET", "POST"]),
                Route(f"{ROOT}/sign-out", self.sign_out, methods=["POST"]),
                self.site.page("/events", self.events),
                Mount(f"{ROOT}/static", assets()),
                *(route for part in parts for route in part.routes),
            ],
            exception_handlers={
                HTTPException: self._refused, ApiError: self._refused, DatabaseError: self._refused,
                Exception: self._refused,
            },
        )  # fmt: skip

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] == "POST":
            receive = _bounded(scope, receive)
        await self._app(scope, receive, send)

    def end_streams(self) -> None:
        """Let the pages' streams end."""
        self.site.ending = self._jobs.followers.ending = True

    async def close(self) -> None:
        self._jobs.followers.close()
        await self.site.judges.close()
        self.site.close()
        self._database.dispose()

    async def root(self, request: Request) -> Response:
        viewer = await self.site.viewer(request)
        return RedirectResponse(f"{ROOT}/{'review' if viewer and viewer.tenant else 'now'}", 303, HEADERS)

    async def events(self, request: Request, viewer: Viewer) -> Response:
        """The unreachable services, for pages on which nothing else is live."""
        return await self.site.stream(request, viewer, beats())

    async def sign_in(self, request: Request) -> Response:
        to = back_to(request.query_params.get("next"), ROOT)
        return self.site.render(request, None, "sign_in.html", to=to, wrong=None)

    async def check_key(self, request: Request) -> Response:
        async with request.form(max_fields=3) as form:
            given, to = str(form.get("key", "")).strip(), back_to(form.get("next"), ROOT)
        key = (await self.site.keys()).get(id_of(given) or "")
        viewer = viewer_of_key(key) if key is not None and key.is_key(given) and is_valid(key) else None
        if viewer is None:
            log.warning("console: refused a sign-in with a key: it is not valid, or may not look")
            wrong = "not a valid key with the scope read, review or admin"
            return self.site.render(request, None, "sign_in.html", 401, to=to, wrong=wrong)
        return await self.site.read(lambda: self.site.sign_in(request, viewer, to))

    async def enter(self, request: Request) -> Response:
        """Show a button first: programs that preview links would use the link up."""
        if request.method == "GET":
            return self.site.render(request, None, "enter.html", token=request.query_params.get("token", ""))
        async with request.form(max_fields=2) as form:
            token = str(form.get("token", ""))
        viewer = await self.site.read(lambda: self.site.sessions.enter(token))
        if viewer is None:
            raise ApiError(401, "the link was used already, or is too old: `thothy console` makes another", code="link")
        return await self.site.read(lambda: self.site.sign_in(request, viewer, ROOT))

    async def sign_out(self, request: Request) -> Response:
        """End the session, so that copies of its cookie are useless."""
        viewer = await self.site.viewer(request)
        if viewer is not None:
            async with request.form(max_fields=1) as form:
                check_csrf(viewer, form.get("csrf"))
            async with self.site.recorded(viewer, "sign out", viewer.name) as record:
                await self.site.read(lambda: self.site.sessions.end(session=viewer.session))
                record.before, record.after = {"signed_in": True}, {"signed_in": False}
        answer = RedirectResponse(f"{ROOT}/sign-in", 303, HEADERS)
        answer.delete_cookie(COOKIE, ROOT)
        return answer

    async def _refused(self, request: Request, error: Exception) -> Response:
        failure = _failure_of(error)
        if failure.status >= 500:
            log.warning("console: %s %s failed: %s", request.method, request.url.path, error)
        if "hx-request" in request.headers:  # a part of a page
            part = self.site.fragment("error_part.html", failure=failure)
            return HTMLResponse(part, failure.status, HEADERS)
        viewer = None
        with suppress(DatabaseError):
            viewer = await self.site.viewer(request)
        again = failure.status == 503 and request.method == "GET"
        values = {"failure": failure, "again": again, "back": _asked_from(request)}
        return self.site.render(request, viewer, "error.html", failure.status, **values)


@dataclass(frozen=True, slots=True)
class ErrorText:
    """What an error page says."""

    status: int
    title: str
    says: str


def _asked_from(request: Request) -> str:
    """The page of the console that led here, if any. For a page that asks for confirmation, it is the page
    before it.
    """
    try:
        came = urlsplit(request.headers.get("referer", ""))
    except ValueError:
        return ""
    path = came.path.removesuffix("/ask")
    if came.netloc != request.url.netloc or path.startswith((f"{ROOT}/sign-in", f"{ROOT}/enter")):
        return ""
    return back_to(f"{path}?{came.query}" if came.query else path, "")


def _failure_of(error: Exception) -> ErrorText:
    if isinstance(error, ApiError):
        return ErrorText(error.status, "That was refused", str(error))
    if isinstance(error, HTTPException):
        if error.status_code == 404:
            return ErrorText(404, "There is no such page", "It may have moved, or what it showed was deleted.")
        return ErrorText(error.status_code, "That was refused", error.detail)
    if isinstance(error, DatabaseError) and error.sqlstate == TOO_LONG:
        says = (
            f"The database would need more than {PAGE_SECONDS} s for this. Ask for less: narrow the filter or the time."
        )
        return ErrorText(503, "That takes too long", says)
    look = "Before you send something again, look whether it was done."
    if isinstance(error, DatabaseError) and (isinstance(error, DatabaseUnreachableError) or error.sqlstate is None):
        return ErrorText(503, "The database does not answer", f"Load the page again in a moment. {look}")
    return ErrorText(500, "That failed", f"The server's log says why. {look}")
