"""Dead jobs by kind and reason, to be queued again or deleted, some or all that match; and quarantine.

The page's address holds the filter. A change affects the jobs that were dead when their number was stated.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from urllib.parse import urlencode
from uuid import UUID

from starlette.datastructures import FormData, QueryParams
from starlette.requests import Request
from starlette.responses import Response

from thothy_ai.admin import dead_letters
from thothy_ai.admin.dead_letters import Selection
from thothy_ai.admin.known_names import unknown_kind, unknown_reason
from thothy_ai.http.console.sessions import Viewer
from thothy_ai.http.console.site import MAX_NOTE, ROOT, Site, action_in, moment_in, span_in, text_in
from thothy_ai.http.errors import ApiError
from thothy_ai.jobs.text.strings import counted

SHOWN = 100  # jobs
MAX_RECORDED = 1_000  # ids of a change
VERBS = {"redrive": "Queue {} again", "purge": "Delete {}, history included"}
RECORDED = {"redrive": "queue dead jobs again", "purge": "delete dead jobs"}
DONE = {"redrive": "queued again", "purge": "deleted"}


class DeadPages:
    """Viewers of one tenant see and change that tenant's dead jobs."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self.routes = [
            site.page("/dead", self.show),
            site.action("/dead/ask", self.ask),
            site.action("/dead/change", self.change),
        ]

    async def show(self, request: Request, viewer: Viewer) -> Response:
        given, database = request.query_params, self._site.database
        wrong, groups, jobs, tenant = None, [], [], viewer.tenant
        try:
            selection = await self._selection(given, viewer)
        except ApiError as error:
            wrong = str(error)
        else:
            tenant = selection.tenant
            groups = await self._site.read(lambda: dead_letters.groups(database, selection))
            jobs = await self._site.read(lambda: dead_letters.list_dead(database, selection, limit=SHOWN))
        quarantined = await self._site.read(lambda: dead_letters.quarantined(database, tenant, limit=SHOWN))
        return self._site.render(
            request,
            viewer,
            "dead.html",
            200 if wrong is None else 400,
            wrong=wrong,
            groups=groups,
            total=sum(group.jobs for group in groups),
            jobs=jobs,
            quarantined=quarantined,
            shown=SHOWN,
            given={name: given.get(name, "") for name in ("kind", "reason", "tenant", "since", "until")},
            query=urlencode([(name, value) for name, value in given.multi_items() if value]),
        )

    async def ask(self, request: Request, viewer: Viewer, form: FormData) -> Response:
        """Say what a change would do, and ask for confirmation."""
        action, every = action_in(form, VERBS), form.get("which") == "all"
        selection = await self._chosen(viewer, form)
        selection = await self._site.read(lambda: dead_letters.until_now(self._site.database, selection))
        groups = await self._site.read(lambda: dead_letters.groups(self._site.database, selection))
        total = sum(group.jobs for group in groups)
        return self._site.render(
            request,
            viewer,
            "dead_ask.html",
            action=action,
            verb=VERBS[action].format(counted(total, "job")),
            groups=groups,
            total=total,
            every=every,
            ids=selection.ids,
            until=selection.until,
            query=str(form.get("query", "")),
            max_note=MAX_NOTE,
        )

    async def change(self, request: Request, viewer: Viewer, form: FormData) -> Response:
        action, query, database = action_in(form, VERBS), str(form.get("query", "")), self._site.database
        why = text_in(form, "why")
        deadline = moment_in(form, "deadline")
        asked_at = moment_in(form, "until")
        if asked_at is None:
            raise ApiError(400, "until: expected the moment at which the jobs were counted", code="invalid_value")
        selection = await self._chosen(viewer, form)
        selection = replace(selection, until=asked_at if selection.until is None else min(selection.until, asked_at))
        groups = await self._site.read(lambda: dead_letters.groups(database, selection))
        total, said = sum(group.jobs for group in groups), str(form.get("number", ""))
        if total > (int(said) if said.isdecimal() and len(said) < 12 else 0):
            raise ApiError(
                409, f"{counted(total, 'job')} match by now, more than you have confirmed: ask again", code="changed"
            )
        by = f"{viewer.signature} in the console"
        change: dict[str, Callable[[], int]] = {
            "redrive": lambda: dead_letters.redrive(database, selection, by=by, why=why, deadline=deadline),
            "purge": lambda: dead_letters.purge(database, selection),
        }
        async with self._site.recorded(viewer, RECORDED[action], counted(total, "job")) as record:
            ids = [str(each) for each in selection.ids[:MAX_RECORDED]]
            record.before = {
                "groups": [asdict(group) for group in groups],
                **({"ids": ids} if ids else {"filter": query}),
            }
            number = await self._site.read(change[action])
            record.after = {"jobs": number, "why": why} | ({"deadline": deadline} if deadline else {})
        return self._site.done(request, f"{ROOT}/dead?{query}", f"{counted(number, 'job')} {DONE[action]}.")

    async def _chosen(self, viewer: Viewer, form: FormData) -> Selection:
        """The jobs that a form selects: the ticked ones, or all that match its filter."""
        if form.get("which") == "all":
            return await self._selection(QueryParams(str(form.get("query", ""))), viewer)
        try:
            ids = tuple(UUID(str(given)) for given in form.getlist("id"))
        except ValueError:
            raise ApiError(400, "id: expected the id of a job", code="invalid_value") from None
        if not ids:
            raise ApiError(400, "no job is chosen: tick some, or choose all that match", code="nothing_chosen")
        return Selection(ids, tenant=viewer.tenant)

    async def _selection(self, query: QueryParams, viewer: Viewer) -> Selection:
        """The dead jobs that an address selects, among those visible to the viewer."""
        kinds, reasons = ([each.strip() for each in query.getlist(name) if each.strip()] for name in ("kind", "reason"))
        tenant = viewer.tenant or query.get("tenant", "").strip() or None

        def in_use(name: str) -> list[str]:
            dead = dead_letters.groups(self._site.database, Selection(tenant=viewer.tenant))
            return [getattr(group, name) for group in dead]

        for name, said in (
            ("kind", await self._site.read(lambda: unknown_kind(self._site.settings, kinds, lambda: in_use("kind")))),
            ("reason", await self._site.read(lambda: unknown_reason(reasons, lambda: in_use("reason")))),
        ):
            if said is not None:
                raise ApiError(400, f"{name}: {said}", code="invalid_value")
        since, until = span_in(query)
        return Selection((), tuple(kinds), tuple(reasons), since, until, tenant)
