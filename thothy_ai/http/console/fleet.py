"""Engines and models, and what is paused: of the whole installation, therefore for viewers of all tenants."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, get_args

from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import Response

from thothy_ai.admin.engines import engines
from thothy_ai.admin.model_aliases import list_aliases, remove_alias, set_alias
from thothy_ai.errors import InvalidJobError
from thothy_ai.http.console.sessions import Viewer
from thothy_ai.http.console.site import ROOT, Site, for_all_tenants
from thothy_ai.http.errors import ApiError
from thothy_ai.queue.control import read_control, set_paused
from thothy_ai.queue.pauses import SCOPES, Scope, pause_part, read_pauses, resume_part

ENDED = timedelta(days=1)  # of engines that are listed after their end
MAX_NOTE = 500


class FleetPages:
    """What an installation runs on, and how it is paused."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self.routes = [
            site.page("/engines", self._show),
            site.action("/engines/pause", self._pause),
            site.action("/engines/resume", self._resume),
            site.action("/engines/alias", self._alias),
        ]

    async def _show(self, request: Request, viewer: Viewer) -> Response:
        for_all_tenants(viewer)

        def read() -> dict[str, Any]:
            with self._site.database.connect() as connection:
                pauses = read_pauses(connection)
            return {
                "engines": engines(self._site.database, ENDED),
                "aliases": list_aliases(self._site.database),
                "control": read_control(self._site.database),
                "pauses": pauses,
                "scopes": SCOPES,
            }

        return self._site.render(request, viewer, "engines.html", **await self._site.read(read))

    async def _pause(self, request: Request, viewer: Viewer, form: FormData) -> Response:
        for_all_tenants(viewer)
        what, database, note = _part_in(form), self._site.database, _note_in(form)
        async with self._site.recorded(viewer, "pause", _named(what)) as record:
            if what is None:
                was = (await self._site.read(lambda: set_paused(database, paused=True, note=note))).paused
            else:
                by = f"{viewer.signature} in the console"
                was = await self._site.read(lambda: pause_part(database, *what, by=by, note=note)) is not None
            record.before, record.after = {"paused": was}, {"paused": True, "note": note}
        return self._site.done(request, f"{ROOT}/engines", f"{_named(what)} is paused; what runs there goes on")

    async def _resume(self, request: Request, viewer: Viewer, form: FormData) -> Response:
        for_all_tenants(viewer)
        what, database = _part_in(form), self._site.database
        async with self._site.recorded(viewer, "resume", _named(what)) as record:
            if what is None:
                was = (await self._site.read(lambda: set_paused(database, paused=False))).paused
            else:
                was = await self._site.read(lambda: resume_part(database, *what)) is not None
            record.before, record.after = {"paused": was}, {"paused": False}
        says = f"{_named(what)} is not paused any more" if was else f"{_named(what)} was not paused"
        return self._site.done(request, f"{ROOT}/engines", says)

    async def _alias(self, request: Request, viewer: Viewer, form: FormData) -> Response:
        """Point an alias at a model, or remove it if no model is given."""
        for_all_tenants(viewer)
        alias, model = (str(form.get(name, "")).strip() for name in ("alias", "model"))
        database = self._site.database
        async with self._site.recorded(viewer, "set alias", alias) as record:
            if not model:
                if not await self._site.read(lambda: remove_alias(database, alias)):
                    raise ApiError(404, f"there is no alias {alias!r}", code="not_found")
            else:
                try:
                    record.before = {"model": await self._site.read(lambda: set_alias(database, alias, model))}
                except InvalidJobError as error:
                    raise ApiError(400, str(error), code="invalid_value") from None
            record.after = {"model": model or None}
        says = f"{alias} stands for {model} from now on" if model else f"{alias} is no alias any more"
        return self._site.done(request, f"{ROOT}/engines", says)


def _part_in(form: FormData) -> tuple[Scope, str] | None:
    """A part of the queue; None for all of it."""
    scope, name = str(form.get("scope", "")), str(form.get("name", "")).strip()
    if scope == "":
        return None
    for known in get_args(Scope):
        if scope == known and name:
            return known, name
    raise ApiError(400, f"expected one of {', '.join(SCOPES)}, and a name", code="invalid_value")


def _named(what: tuple[str, str] | None) -> str:
    return "the queue" if what is None else " ".join(what)


def _note_in(form: FormData) -> str | None:
    note = str(form.get("note", "")).strip()
    if len(note) > MAX_NOTE:
        raise ApiError(400, f"the note has more than {MAX_NOTE} characters", code="invalid_value")
    return note or None
