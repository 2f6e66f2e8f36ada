"""The runbooks of alarms, rendered from the documentation."""

from __future__ import annotations

import re
from importlib.resources import files

from markdown_it import MarkdownIt
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response

from thothy_ai.admin.alarms import BY_PROMETHEUS, RULES
from thothy_ai.http.console.sessions import Viewer
from thothy_ai.http.console.site import ROOT, Site
from thothy_ai.http.errors import ApiError

ELSEWHERE = re.compile(r"\[([^\]]+)\]\((?!Thothy\w+\.md\))[^)]*\)")  # a link to a page that the console does not have
BESIDE = re.compile(r"\]\((Thothy\w+)\.md\)")


class RunbookPages:
    """One page for each alarm, and a list of them."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._markdown = MarkdownIt("commonmark", {"html": False}).enable("table")
        self.routes = [site.page("/runbooks", self.list_), site.page("/runbooks/{name}", self.show)]

    async def list_(self, request: Request, viewer: Viewer) -> Response:
        alerts = [(name, severity, "here") for name, (severity, _) in RULES.items()]
        alerts += [(name, severity, "by Prometheus") for name, severity in BY_PROMETHEUS.items()]
        return self._site.render(request, viewer, "runbooks.html", alerts=sorted(alerts))

    async def show(self, request: Request, viewer: Viewer) -> Response:
        name = request.path_params["name"]
        folder = files("thothy_ai").joinpath("runbooks")
        if not any(each.name == f"{name}.md" for each in folder.iterdir()):
            raise ApiError(404, f"there is no runbook {name!r}", code="not_found")
        text = ELSEWHERE.sub(r"\1", folder.joinpath(f"{name}.md").read_text(encoding="utf-8"))
        page = self._markdown.render(BESIDE.sub(rf"]({ROOT}/runbooks/\1)", text))
        return self._site.render(request, viewer, "runbook.html", name=name, page=Markup(page))  # noqa: S704 - ours, without HTML
