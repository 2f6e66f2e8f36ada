"""Engines and pauses. They belong to the whole installation, so only viewers of all tenants see them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, get_args

from sqlalchemy import Engine
from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import Response

from thothy_ai.admin.engines import engines
from thothy_ai.admin.filters import JobFilter, kinds_in_use
from thothy_ai.admin.jobs import JobList
from thothy_ai.admin.known_names import unknown_engine, unknown_kind
from thothy_ai.admin.model_aliases import list_aliases
from thothy_ai.http.console.sessions import Viewer
from thothy_ai.http.console.site import MAX_NOTE, ROOT, Site, for_all_tenants, text_in
from thothy_ai.http.errors import ApiError
from thothy_ai.queue.control import Control, read_control, set_paused
from thothy_ai.queue.pauses import SCOPES, Pause, Scope, pause_part, read_pauses, resume_part

ENDED = timedelta(days=1)  # that engines are listed after their end


class FleetPages:
    """The engines of an installation, and its pauses."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self.routes = [
            site.page("/engines", self.show),
            site.action("/engines/pause", self.pause),
            site.action("/engines/resume", self.resume),
        ]

    async def show(self, request: Request, viewer: Viewer) -> Response:
        for_all_tenants(viewer)

        def read() -> dict[str, Any]:
            with self._site.database.connect() as connection:
                pauses = read_pauses(connection)
            return {
                "engines": engines(self._site.database, ENDED),
                "control": read_control(self._site.database),
                "pauses": pauses,
                "scopes": SCOPES,
                "max_note": MAX_NOTE,
            }

        return self._site.render(request, viewer, "engines.html", **await self._site.read(read))

    async def pause(self, request: Request, viewer: Viewer, form: FormData) -> Response:
        for_all_tenants(viewer)
        what, database, note = _part_in(form), self._site.database, text_in(form, "note")
        if what is not None:
            await self._check_known(*what)
        before: Control | Pause | None
        async with self._site.recorded(viewer, "pause", _named(what)) as record:
            if what is None:
                whole = await self._site.read(lambda: set_paused(database, paused=True, note=note))
                before = whole if whole.paused else None
            else:
                by = f"{viewer.signature} in the console"
                before = await self._site.read(lambda: pause_part(database, *what, by=by, note=note))
            record.before = {"paused": before is not None, "note": before and before.note}
            record.after = {"paused": True, "note": note or (before and before.note)}
        renamed = f"; the note is now: {note}" if before is not None and note and note != before.note else ""
        if what is not None and await self._site.read(lambda: _is_of_nothing(database, *what)):
            renamed += ". No job or engine of this name is known: resume it if the name is wrong"
        says = (
            f"Paused the {_named(what)}{renamed}."
            if before is None
            else f"The {_named(what)} was paused already{renamed}."
        )
        return self._site.done(
            request, f"{ROOT}/{_page_in(form)}", f"{says} Jobs that are dispatched or running finish."
        )

    async def resume(self, request: Request, viewer: Viewer, form: FormData) -> Response:
        for_all_tenants(viewer)
        what, database = _part_in(form), self._site.database
        before: Control | Pause | None
        async with self._site.recorded(viewer, "resume", _named(what)) as record:
            if what is None:
                whole = await self._site.read(lambda: set_paused(database, paused=False))
                before = whole if whole.paused else None
            else:
                before = await self._site.read(lambda: resume_part(database, *what))
            record.before = {"paused": before is not None, "note": before and before.note}
            record.after = {"paused": False}
        says = f"The {_named(what)} was not paused." if before is None else f"Resumed the {_named(what)}."
        return self._site.done(request, f"{ROOT}/{_page_in(form)}", says)

    async def _check_known(self, scope: Scope, name: str) -> None:
        """Raise `ApiError` 400 for an unknown kind or engine: the pause would have no effect."""
        database, settings = self._site.database, self._site.settings
        said = None
        if scope == "kind":
            said = await self._site.read(lambda: unknown_kind(settings, [name], lambda: kinds_in_use(database)))
        elif scope == "engine":
            said = await self._site.read(lambda: unknown_engine(database, name))
        if said is not None:
            raise ApiError(400, f"{scope}: {said}", code="invalid_value")


def _is_of_nothing(database: Engine, scope: Scope, name: str) -> bool:
    """Whether a quick look finds no job of this tenant or model, and no engine that serves the model."""
    if scope not in {"tenant", "model"}:
        return False
    if scope == "model":
        served = {name for each in engines(database) for name in (each.model_name, *each.adapters)}
        if name in served | {each.model_name for each in list_aliases(database)}:
            return False
    wanted = JobFilter(tenant=name) if scope == "tenant" else JobFilter(model=name)
    return JobList(wanted).look(database, limit=1) == ([], None)


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
    return "queue" if what is None else " ".join(what)


def _page_in(form: FormData) -> str:
    """The page that a form was on: the models page can pause models as well."""
    return "models" if form.get("back") == "models" else "engines"
