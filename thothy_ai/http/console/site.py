"""`Site`: shared by the console's pages: viewers, templates, reading, and the record of changes."""

from __future__ import annotations

import asyncio
import json
import re
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeVar
from urllib.parse import quote, unquote, urlsplit
from uuid import UUID

from jinja2 import Environment, PackageLoader, StrictUndefined, pass_context
from jinja2.runtime import Context
from markupsafe import Markup, escape
from sqlalchemy import Engine
from starlette.datastructures import FormData, QueryParams
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route
from uuid_utils.compat import uuid7

from thothy_ai.admin.durations import per_time, spell, spell_whole
from thothy_ai.admin.report.bill import money
from thothy_ai.admin.top.queue import Paced
from thothy_ai.db.api_keys import ApiKey, list_keys
from thothy_ai.db.connect import reaching
from thothy_ai.db.statements import statement
from thothy_ai.errors import DatabaseError, ThothyError
from thothy_ai.http.api.operations import stream_of
from thothy_ai.http.console.assets import asset
from thothy_ai.http.console.readings import READ_SECONDS, Readings
from thothy_ai.http.console.sessions import COOKIE, SESSION_SECONDS, Sessions, Viewer, ViewerRole, check_csrf
from thothy_ai.http.errors import ApiError
from thothy_ai.http.following import Places
from thothy_ai.jobs.checks.gates import measure
from thothy_ai.plans.judges import EDIT_JUDGES, Judges
from thothy_ai.producer.decisions import meaning_checked
from thothy_ai.queue.moments import RANGE, nameable
from thothy_ai.settings import Settings

T = TypeVar("T")
Read = Callable[[Request, Viewer], Awaitable[Response]]
Change = Callable[[Request, Viewer, FormData], Awaitable[Response]]

ROOT = "/console"
NOTICE = "thothy_notice"  # the cookie with the result of the last action, for the next page
MAX_NOTICE = 500  # characters
MAX_NOTE = 500  # characters, as of the command line
SESSION_CHECK_SECONDS = 10.0  # between two checks of a stream's session
ACCESS_SECONDS = 2.0  # after which an ended session, or one with a revoked key, is refused
PAGE_THREADS = 6  # that wait for the database; the API has its own
PAGE_SECONDS = 10  # for one statement of a page
# A generic plan for all values of a filter suits none of them: most filters are empty.
PAGE_SESSION = {"statement_timeout": f"{PAGE_SECONDS}s", "plan_cache_mode": "force_custom_plan"}
MAX_FIELDS = 2_000  # of a form
MAX_FORM = 5_000_000  # bytes: the longest artifact that is edited
MAX_TEXT = 25_000  # characters of one text, unless requested in full: the door's event loop renders it
UNSEEN = re.compile(  # not the joiners of words and emoji, U+200C and U+200D
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)
PING_SECONDS = 5.0  # between two signs of life on a stream
MAX_STREAMS, MAX_STREAMS_OF_ONE = 1_000, 100
HEADERS = {
    # Scripts and styles are files of ours; nothing comes from elsewhere, and no other page may frame this one.
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:;"
    " connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    "cache-control": "no-store",
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
}
EVENT_HEADERS = {**HEADERS, "x-accel-buffering": "no"}  # nginx would collect events


@dataclass(slots=True)
class ChangeRecord:
    """The recorded target and result of a change."""

    before: dict[str, Any] | None = None
    after: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class KnownAccess:
    """All API keys by id, and the sessions that were ended."""

    keys: dict[str, ApiKey]
    ended: frozenset[UUID]


class Site:
    """Owns the sessions and the templates; reads and changes the record on threads."""

    def __init__(self, settings: Settings, database: Engine) -> None:
        self.settings, self.database = settings, database
        self.sessions = Sessions(database)
        self.judges = Judges(settings.kinds, settings.judge_seconds, EDIT_JUDGES, settings.gates_as_findings)
        self.readings = Readings(settings)
        self.ending = False  # streams end once it is True
        self._known: KnownAccess | None = None
        self._access = Paced(self._read_access, ACCESS_SECONDS)
        self._streams = Places(MAX_STREAMS, MAX_STREAMS_OF_ONE, "live pages")
        self._pages = ThreadPoolExecutor(PAGE_THREADS, thread_name_prefix="console")
        self._doorkeepers = ThreadPoolExecutor(2, thread_name_prefix="console-session")
        self._templates = Environment(
            loader=PackageLoader("thothy_ai.http.console"),
            autoescape=True,
            trim_blocks=True,
            lstrip_blocks=True,
            undefined=StrictUndefined,
            finalize=shown,
        )
        self._templates.filters |= {
            "ago": ago,
            "count": count,
            "seconds": spell,
            "estimate": spell_whole,
            "rate": per_time,
            "share": share,
            "measure": measure,
            "meaning_checked": meaning_checked,
            "short": short,
            "label": label,
            "exact": exact,
            "money": money,
            "stamp": stamp,
            "cut": cut,
        }
        self._templates.globals |= {"Role": ViewerRole, "root": ROOT, "asset": asset}

    def page(self, path: str, read: Read, role: ViewerRole = ViewerRole.READER) -> Route:
        """The route of a page that viewers of at least this role may see."""

        async def answer(request: Request) -> Response:
            viewer = await self.viewer(request)
            if viewer is None:
                if "hx-request" in request.headers:  # htmx would insert a whole page into a part
                    return Response(status_code=401, headers={**HEADERS, "hx-redirect": f"{ROOT}/sign-in"})
                return RedirectResponse(f"{ROOT}/sign-in?next={quote(_address(request))}", 303, HEADERS)
            allow(viewer, role)
            _check_texts(request.query_params)
            return await read(request, viewer)

        return Route(ROOT + path, answer, methods=["GET"])

    def action(self, path: str, change: Change, role: ViewerRole = ViewerRole.OPERATOR) -> Route:
        """The route of a form that viewers of at least this role may send."""

        async def answer(request: Request) -> Response:
            viewer = await self.viewer(request)
            if viewer is None:
                raise ApiError(401, "the session is over: sign in again", code="signed_out")
            async with request.form(max_fields=MAX_FIELDS, max_part_size=MAX_FORM) as form:
                check_csrf(viewer, form.get("csrf"))
                allow(viewer, role)
                _check_texts(form)
                return await change(request, viewer, form)

        return Route(ROOT + path, answer, methods=["POST"])

    async def viewer(self, request: Request) -> Viewer | None:
        """The viewer who sent the request, if the session is valid."""
        if (cookie := request.cookies.get(COOKIE)) is None:
            return None
        viewer = await self._asked(lambda: self.sessions.viewer(cookie), self._doorkeepers)
        if viewer is None:
            return None
        known, _ = await self._asked(self._access.value, self._doorkeepers)
        if viewer.session in known.ended:
            return None
        key = known.keys.get(viewer.key) if viewer.key is not None else None
        return viewer if viewer.key is None or (key is not None and is_valid(key)) else None

    async def keys(self) -> dict[str, ApiKey]:
        """All API keys by id, as they were at most `ACCESS_SECONDS` ago."""
        return (await self._asked(self._access.value, self._doorkeepers))[0].keys

    async def read(self, ask: Callable[[], T]) -> T:
        """The result of a function that waits for the database. Raises `DatabaseError`."""
        return await self._asked(ask, self._pages)

    async def _asked(self, ask: Callable[[], T], threads: ThreadPoolExecutor) -> T:
        def asked() -> T:
            with reaching(self.settings):
                return ask()

        return await asyncio.get_running_loop().run_in_executor(threads, asked)

    def close(self) -> None:
        """Let the threads end after their current work."""
        self.readings.close()
        for threads in (self._pages, self._doorkeepers):
            threads.shutdown(wait=False, cancel_futures=True)

    def render(
        self, request: Request, viewer: Viewer | None, template: str, status: int = 200, /, **values: object
    ) -> Response:
        """A whole page, with the notice of the last action."""
        notice = request.cookies.get(NOTICE)
        context = {
            "viewer": viewer,
            "path": request.url.path,
            "whole": is_whole(request),
            "notice": _read_notice(notice) if notice else None,
            "away": self._away(viewer) if viewer else [],
            **values,
        }
        answer = HTMLResponse(self._templates.get_template(template).render(context), status, HEADERS)
        if notice is not None:
            answer.delete_cookie(NOTICE, ROOT)
        return answer

    def fragment(self, template: str, /, **values: object) -> str:
        """A part of a page."""
        return self._templates.get_template(template).render(values)

    async def stream(self, request: Request, viewer: Viewer, parts: AsyncIterator[str | None]) -> Response:
        """A page's stream, until the viewer leaves or the session ends: its parts as they change, and unreachable
        services.

        `parts` yields None where nothing has changed, at least every few seconds.
        """
        await self.readings.begin()
        return await stream_of(self._streamed(request, viewer, parts), "text/event-stream", EVENT_HEADERS)

    async def _streamed(
        self, request: Request, viewer: Viewer, parts: AsyncIterator[str | None]
    ) -> AsyncIterator[bytes]:
        said: list[tuple[str, str]] | None = None
        checked_at = sent_at = time.monotonic()
        with self._streams.taken(viewer.identity), self.readings.watched():
            async with aclosing(parts):  # type: ignore[type-var]
                async for part in parts:
                    now = time.monotonic()
                    if self.ending:
                        return
                    if now - checked_at > SESSION_CHECK_SECONDS:
                        checked_at = now
                        with suppress(DatabaseError):  # checked again once the database is back
                            if await self.viewer(request) is None:
                                return
                    text = part or ""
                    if (away := self._away(viewer)) != said:
                        said = away
                        text += self.fragment("away_part.html", away=away)
                    if text:
                        sent_at = now
                        yield "".join(f"data: {line}\n" for line in text.splitlines()).encode() + b"\n"
                    elif now - sent_at > PING_SECONDS:
                        sent_at = now
                        yield b"event: alive\ndata: now\n\n"

    def _away(self, viewer: Viewer) -> list[tuple[str, str]]:
        """The unreachable services; the reasons only for viewers of the whole installation."""
        return [(name, "" if viewer.tenant else why) for name, why in self.readings.away()]

    def sign_in(self, request: Request, viewer: Viewer, to: str) -> Response:
        """Begin a session and go on to a page."""
        answer = RedirectResponse(to, 303, HEADERS)
        cookie, secure = self.sessions.begin(viewer), request.url.scheme == "https"
        answer.set_cookie(COOKIE, cookie, SESSION_SECONDS, path=ROOT, httponly=True, samesite="lax", secure=secure)
        return answer

    def done(self, request: Request, to: str, says: str, about: str = "") -> Response:
        """Go back to a page that reports once what was done, with a link to the page `about` it."""
        answer = RedirectResponse(to, 303, HEADERS)
        secure = request.url.scheme == "https"
        # A browser drops a cookie of more than 4,096 bytes, whatever the writing.
        notice = urlsafe_b64encode(f"{about}\n{says[:MAX_NOTICE]}".encode("utf-8", "replace")).decode("ascii")
        answer.set_cookie(NOTICE, notice, 60, path=ROOT, httponly=True, samesite="strict", secure=secure)
        return answer

    @asynccontextmanager
    async def recorded(self, viewer: Viewer, action: str, target: str) -> AsyncIterator[ChangeRecord]:
        """Record a change: before the block, that the viewer makes it, so that nothing changes without a record; after
        it, the old and the new state.
        """
        record = ChangeRecord()
        begun = {
            "id": uuid7(), "name": viewer.signature, "tenant": viewer.tenant, "action": action, "target": target
        }  # fmt: skip
        await self.read(lambda: self._execute("http/begin_change", begun))
        try:
            yield record
        except (ApiError, ThothyError) as error:
            record.after = {"refused": str(error)}
            raise
        finally:
            ended = {
                "id": begun["id"],
                "before": None if record.before is None else json.dumps(record.before, default=str),
                "after": json.dumps(record.after, default=str),
            }
            await self.read(lambda: self._execute("http/end_change", ended))

    def _execute(self, name: str, values: Mapping[str, Any]) -> None:
        with self.database.begin() as connection:
            connection.execute(statement(name), values)

    def _read_access(self) -> KnownAccess:
        try:
            with reaching(self.settings), self.database.connect() as connection:
                keys = {key.id: key for key in list_keys(connection)}
                ended = frozenset(connection.scalars(statement("http/ended_sessions")))
        except DatabaseError:
            if self._known is None:
                raise
            return self._known  # an open page reports that Postgres is unreachable, and goes on
        self._known = KnownAccess(keys, ended)
        return self._known


async def beats(seconds: float = READ_SECONDS) -> AsyncIterator[None]:
    """Yields None periodically: the parts of a page without live parts."""
    while True:
        yield None
        await asyncio.sleep(seconds)


def allow(viewer: Viewer, role: ViewerRole) -> None:
    """Raise `ApiError` 403 unless the viewer has at least this role."""
    if viewer.role < role:
        name = role.name.lower()
        raise ApiError(403, f"this needs the role {name!r}, and yours is {viewer.role.name.lower()!r}", code="role")


def for_all_tenants(viewer: Viewer) -> None:
    """Raise `ApiError` 403 for a viewer of one tenant: the page is about all tenants."""
    if viewer.tenant is not None:
        says = f"this page is about all tenants, and you see {viewer.tenant!r} only"
        raise ApiError(403, says, code="tenant")


def is_valid(key: ApiKey) -> bool:
    """Whether a key is neither revoked nor expired."""
    return key.revoked_at is None and (key.expires_at is None or key.expires_at > datetime.now(UTC))


def text_in(form: FormData, name: str) -> str | None:
    """An optional note of a form, of bounded length."""
    note = str(form.get(name, "")).strip()
    if len(note) > MAX_NOTE:
        raise ApiError(400, f"{name}: has {len(note):,} characters; the limit is {MAX_NOTE}", code="invalid_value")
    return note or None


def action_in(form: FormData, known: Collection[str]) -> str:
    """The action that a form names; `ApiError` for one that its page lacks."""
    action = str(form.get("action", ""))
    if action not in known:
        raise ApiError(400, f"action: expected one of {', '.join(known)}", code="invalid_value")
    return action


def moment_in(given: FormData | QueryParams, name: str) -> datetime | None:
    """The moment in a field; UTC unless it has a time zone."""
    if not (text := str(given.get(name, "")).strip()):
        return None
    try:
        moment = datetime.fromisoformat(text)
        moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    except ValueError:
        moment = None
    if moment is None or not nameable(moment):
        says = f"{name}: expected a time {RANGE}, such as 2026-01-31T17:00, got {text!r}"
        raise ApiError(400, says, code="invalid_value")
    return moment


def span_in(query: QueryParams) -> tuple[datetime | None, datetime | None]:
    """The moments `since` and `until` of an address; `ApiError` unless the second is after the first."""
    since, until = moment_in(query, "since"), moment_in(query, "until")
    if since is not None and until is not None and until <= since:
        raise ApiError(400, "until: expected a time after since", code="invalid_value")
    return since, until


def back_to(given: object, default: str) -> str:
    """A page of the console that a form names; the default for anything else."""
    if not isinstance(given, str):
        return default
    try:
        parts = urlsplit(given)
    except ValueError:
        return default
    ours = not parts.scheme and not parts.netloc and parts.path.startswith(f"{ROOT}/") and "\\" not in given
    return given if ours and ".." not in unquote(parts.path).split("/") else default


def is_whole(request: Request) -> bool:
    """Whether the request asks for texts in full."""
    return "whole" in request.query_params


def cut(text: str, most: int) -> str:
    """The beginning of a text, and the number of characters left out."""
    return text if len(text) <= most else f"{text[:most]} … and {len(text) - most:,} characters more"


@pass_context
def shown(context: Context, value: object) -> object:
    """A value as templates print it, of bounded length."""
    if isinstance(value, str) and not isinstance(value, Markup) and not context.get("whole"):
        value = cut(value, MAX_TEXT)
    return visible(value)


def visible(value: object) -> object:
    """A text with control characters and direction overrides spelled out, since they would garble the text around them.
    Values that a form sends back use `exact` instead.
    """
    if value is None:
        return ""
    if isinstance(value, Markup) or not isinstance(value, str):
        return value
    return UNSEEN.sub(lambda found: f"\\u{ord(found[0]):04x}", value)


def exact(value: object) -> Markup:
    """An unchanged value, for a form that sends it back."""
    return escape("" if value is None else value)


def count(number: float) -> str:
    return f"{number:,.0f}"


def share(part: float | None) -> str:
    return "-" if part is None else f"{part:.0%}"


def short(value: object) -> str:
    """The end of an id, which the CLI also accepts."""
    return str(value)[-8:]


def label(part: str) -> str:
    """A readable name of an artifact's field: "Key point 1: quote" for "key_points.0.quote"."""
    words: list[str] = []
    for step in part.replace(":", " to ").split("."):
        if step.isdecimal() and words:
            one = re.sub("(?<!s)s$", "", re.sub("ies$", "y", words[-1]))
            words[-1] = f"{one} {int(step) + 1}"
        else:
            words.append(step.replace("_", " "))
    text = ": ".join(words)
    return text[:1].upper() + text[1:]


def stamp(moment: datetime) -> str:
    """A moment to the microsecond, for an address."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def ago(moment: datetime | None) -> Markup:
    """How long ago a moment was, with the moment itself as a hint."""
    if moment is None:
        return Markup("-")
    passed = (datetime.now(UTC) - moment).total_seconds()
    text = f"{spell(passed)} ago" if passed >= 0 else f"in {spell(-passed)}"
    exact = moment.astimezone(UTC)
    return Markup('<time datetime="{}" title="{} UTC">{}</time>').format(
        exact.isoformat(timespec="seconds"), exact.strftime("%Y-%m-%d %H:%M:%S"), text
    )


def _read_notice(cookie: str) -> tuple[str, str] | None:
    """The result of the last action, and the address of the page about it."""
    try:
        about, _, says = urlsafe_b64decode(cookie).decode("utf-8").partition("\n")
    except ValueError:
        return None
    return says, back_to(about, "")


def _check_texts(given: FormData | QueryParams) -> None:
    """Raise `ApiError` 400 for a text that Postgres cannot store."""
    for name, value in given.multi_items():
        if isinstance(value, str) and "\0" in value:
            raise ApiError(400, f"{name}: a NUL character cannot be kept", code="invalid_value")


def _address(request: Request) -> str:
    return request.url.path + (f"?{request.url.query}" if request.url.query else "")
