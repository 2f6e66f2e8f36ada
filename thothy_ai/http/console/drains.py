"""Past drains and the bill: how long the queue took to empty, and how much was spent on what.

A drain has a page of its own, whose address names the moment at which it began. Every table can be had as CSV.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from thothy_ai.admin.export.table import csv_line
from thothy_ai.admin.report.bill import DIMENSIONS, Dimension, Prices
from thothy_ai.admin.report.drain_report import DrainReport, drain_report
from thothy_ai.admin.report.recorded_drains import RecordedDrain, list_drains
from thothy_ai.admin.report.timeline import Timeline, report_with_timeline
from thothy_ai.http.console.drain_tables import Rows, bill_rows, drain_rows, timeline_rows, waste_rows, yield_rows
from thothy_ai.http.console.sessions import Viewer
from thothy_ai.http.console.site import HEADERS, Site, for_all_tenants
from thothy_ai.http.errors import ApiError

WINDOWS = {"1 h": 1, "24 h": 24, "7 d": 7 * 24, "30 d": 30 * 24}  # hours
MOMENT = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class DrainWindow:
    """The period of a page: a window that ends now, or a recorded drain."""

    report: DrainReport
    drains: Sequence[RecordedDrain]
    timeline: Timeline | None = None  # of a drain


class DrainPages:
    """Both are about the whole installation: device time without work belongs to no tenant."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self.routes = [
            site.page("/drains", self.show),
            site.page("/drains/{table}.csv", self.csv),
            site.page("/drains/{began}", self.show_one),
            site.page("/drains/{began}/{table}.csv", self.csv),
        ]

    async def show(self, request: Request, viewer: Viewer) -> Response:
        for_all_tenants(viewer)
        window, span = await self._window(request)
        drains = list(reversed(span.drains))
        about = {"windows": list(WINDOWS), "window": window, "drains": drains}
        return self._site.render(request, viewer, "drains.html", **about, **_spent(span.report, _dimension(request)))

    async def show_one(self, request: Request, viewer: Viewer) -> Response:
        for_all_tenants(viewer)
        span = await self._drain(request.path_params["began"])
        about = {"drain": span.drains[0], "timeline": span.timeline}
        return self._site.render(request, viewer, "drain.html", **about, **_spent(span.report, _dimension(request)))

    async def csv(self, request: Request, viewer: Viewer) -> Response:
        for_all_tenants(viewer)
        table, began, by = request.path_params["table"], request.path_params.get("began"), _dimension(request)
        span = (await self._window(request))[1] if began is None else await self._drain(began)
        tables: dict[str, Callable[[], Rows]] = {
            "bill": lambda: bill_rows(span.report, by),
            "waste": lambda: waste_rows(span.report),
            "yields": lambda: yield_rows(span.report),
            "drains": lambda: drain_rows(span.drains),
        }
        if (timeline := span.timeline) is not None:
            tables["timeline"] = lambda: timeline_rows(timeline)
        if table not in tables:
            raise ApiError(404, f"expected one of {', '.join(tables)}, got {table!r}", code="not_found")
        name = f"bill-by-{by}" if table == "bill" else table
        headers = {**HEADERS, "content-disposition": f'attachment; filename="{name}.csv"'}
        lines = map(csv_line, tables[table]())
        return StreamingResponse(lines, media_type="text/csv; charset=utf-8", headers=headers)

    async def _window(self, request: Request) -> tuple[str, DrainWindow]:
        """The window that an address names, and its name."""
        name = request.query_params.get("window", "24 h")
        if name not in WINDOWS:
            raise ApiError(400, f"window: expected one of {', '.join(WINDOWS)}", code="invalid_value")
        until = datetime.now(UTC)
        since, database, prices = until - timedelta(hours=WINDOWS[name]), self._site.database, self._prices()
        return name, await self._site.read(
            lambda: DrainWindow(drain_report(database, since, prices=prices), list_drains(database, since, until))
        )

    async def _drain(self, began: str) -> DrainWindow:
        """The drain that began at this moment."""
        unknown = ApiError(404, f"no drain that began at {began!r} is recorded", code="not_found")
        try:
            moment = datetime.fromisoformat(began)
            since, until = moment.astimezone(UTC), moment.astimezone(UTC) + MOMENT
        except (ValueError, OverflowError):
            raise unknown from None
        database, prices = self._site.database, self._prices()
        drains = await self._site.read(lambda: list_drains(database, since, until))
        found = [drain for drain in drains if drain.started_at == since]
        if not found:
            raise unknown
        end = found[0].ended_at + MOMENT  # its last job ended at that moment
        report, timeline = await self._site.read(lambda: report_with_timeline(database, since, end, prices))
        return DrainWindow(report, found, timeline)

    def _prices(self) -> Prices:
        return Prices.of(self._site.settings)


def _spent(report: DrainReport, by: Dimension) -> dict[str, Any]:
    """The part of a report that both pages show: yields by kind, waste by reason, and the bill."""
    waste = sorted(report.total.wasted.items(), key=lambda each: -each[1])
    return {
        "report": report,
        "bill": report.bill,
        "lines": report.bill.by(by),
        "by": by,
        "dimensions": DIMENSIONS,
        "waste": [(key.label, report.total.attempts[key], seconds) for key, seconds in waste],
        "yields": {kind: of for kind, of in report.kinds.items() if of.with_output},
    }


def _dimension(request: Request) -> Dimension:
    given = request.query_params.get("by", "kind")
    for known in DIMENSIONS:
        if given == known:
            return known
    raise ApiError(400, f"by: expected one of {', '.join(DIMENSIONS)}", code="invalid_value")
