"""Models and adapters: the engines that serve each, jobs that wait for one without engines, and aliases for jobs."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import Response

from thothy_ai.admin.adapters import grouped
from thothy_ai.admin.engines import EngineStatus, engines
from thothy_ai.admin.model_aliases import list_aliases, remove_alias, set_alias
from thothy_ai.errors import InvalidJobError
from thothy_ai.http.console.sessions import Viewer
from thothy_ai.http.console.site import ROOT, Site, for_all_tenants
from thothy_ai.http.errors import ApiError
from thothy_ai.queue.pauses import read_pauses
from thothy_ai.queue.status import unserved_jobs


class ModelPages:
    """These pages are about the whole installation: engines serve all tenants."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self.routes = [
            site.page("/models", self.show),
            site.action("/models/alias", self.alias),
            site.action("/models/unalias", self.unalias),
        ]

    async def show(self, request: Request, viewer: Viewer) -> Response:
        for_all_tenants(viewer)

        def read() -> dict[str, Any]:
            served: defaultdict[str, list[EngineStatus]] = defaultdict(list)
            running = engines(self._site.database)
            for each in running:
                served[each.model_name].append(each)
            with self._site.database.connect() as connection:
                paused = {pause.name: pause for pause in read_pauses(connection) if pause.scope == "model"}
                unserved = unserved_jobs(connection)
            adapters = grouped(running)
            names = sorted({*served, *(paused.keys() - {each.name for each in adapters})})
            return {
                "models": {name: served.get(name, []) for name in names},
                "adapters": adapters,
                "paused": paused,
                "unserved": unserved,
                "aliases": list_aliases(self._site.database),
            }

        return self._site.render(request, viewer, "models.html", **await self._site.read(read))

    async def alias(self, request: Request, viewer: Viewer, form: FormData) -> Response:
        for_all_tenants(viewer)
        alias, model = (str(form.get(name, "")).strip() for name in ("alias", "model"))
        database = self._site.database
        try:
            async with self._site.recorded(viewer, "set alias", alias) as record:
                before = await self._site.read(lambda: set_alias(database, alias, model))
                record.before, record.after = {"model": before}, {"model": model}
        except InvalidJobError as error:
            raise ApiError(400, str(error), code="invalid_value") from None
        found = await self._site.read(lambda: list_aliases(database))
        was = f", no longer {before}" if before not in {None, model} else ""
        idle = (
            "" if any(each.engines for each in found if each.alias == alias) else " No engine serves it at the moment."
        )
        return self._site.done(request, f"{ROOT}/models", f"{alias} now stands for {model}{was}.{idle}")

    async def unalias(self, request: Request, viewer: Viewer, form: FormData) -> Response:
        for_all_tenants(viewer)
        alias, database = str(form.get("alias", "")).strip(), self._site.database
        known = {each.alias: each.model_name for each in await self._site.read(lambda: list_aliases(database))}
        if alias not in known:
            raise ApiError(404, f"there is no alias {alias}", code="not_found")
        async with self._site.recorded(viewer, "remove alias", alias) as record:
            await self._site.read(lambda: remove_alias(database, alias))
            record.before, record.after = {"model": known[alias]}, {"model": None}
        return self._site.done(request, f"{ROOT}/models", f"{alias} is no longer an alias.")
