"""Past drains and the bill: how long the queue took to empty, what was spent, and what for."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from thothy_ai.admin.export.table import csv_line
from thothy_ai.admin.report.bill import DIMENSIONS, Bill, Dimension, Prices
from thothy_ai.admin.report.drain_report import DrainReport, drain_report
from thothy_ai.admin.report.recorded_drains import RecordedDrain, list_drains
from thothy_ai.http.console.sessions import Viewer
from thothy_ai.http.console.site import HEADERS, Site, for_all_tenants
from thothy_ai.http.errors import ApiError

WINDOWS = {"1 h": 1, "24 h": 24, "7 d": 7 * 24, "30 d": 30 * 24}  # hours


class DrainPages:
    """Both are about the whole installation: device time without work belongs to no tenant."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self.routes = [site.page("/drains", self._show), site.page("/drains/bill.csv", self._csv)]

    async def _show(self, request: Request, viewer: Viewer) -> Response:
        for_all_tenants(viewer)
        window, since = _window(request)
        until = datetime.now(UTC)
        report, drains = await self._site.read(lambda: (self._report(since), self._drains(since, until)))
        by = _dimension(request)
        return self._site.render(
            request,
            viewer,
            "drains.html",
            windows=list(WINDOWS),
            window=window,
            report=report,
            bill=report.bill,
            lines=report.bill.by(by),
            by=by,
            dimensions=DIMENSIONS,
            drains=list(reversed(drains)),
            bars=_bars(drains),
            waste=sorted(((key.label, spent) for key, spent in report.total.wasted.items()), key=lambda each: -each[1]),
        )

    async def _csv(self, request: Request, viewer: Viewer) -> Response:
        for_all_tenants(viewer)
        _, since = _window(request)
        by = _dimension(request)
        report = await self._site.read(lambda: self._report(since))
        headers = {**HEADERS, "content-disposition": f'attachment; filename="bill-by-{by}.csv"'}
        return StreamingResponse(_bill_rows(report.bill, by), media_type="text/csv; charset=utf-8", headers=headers)

    def _report(self, since: datetime) -> DrainReport:
        return drain_report(self._site.database, since, prices=Prices.of(self._site.settings))

    def _drains(self, since: datetime, until: datetime) -> list[RecordedDrain]:
        return list_drains(self._site.database, since, until)


def _window(request: Request) -> tuple[str, datetime]:
    name = request.query_params.get("window", "24 h")
    if name not in WINDOWS:
        raise ApiError(400, f"window: expected one of {', '.join(WINDOWS)}", code="invalid_value")
    return name, datetime.now(UTC) - timedelta(hours=WINDOWS[name])


def _dimension(request: Request) -> Dimension:
    given = request.query_params.get("by", "kind")
    for known in DIMENSIONS:
        if given == known:
            return known
    raise ApiError(400, f"by: expected one of {', '.join(DIMENSIONS)}", code="invalid_value")


def _bars(drains: list[RecordedDrain]) -> list[dict[str, Any]]:
    """A bar per drain for a plot of 100 by 100: how many jobs, and the part of them that succeeded."""
    most = max((drain.jobs for drain in drains), default=0) or 1
    width = 100 / max(len(drains), 1)
    return [
        {
            "x": round(place * width, 2),
            "width": round(width * 0.8, 2),
            "height": round(100 * drain.jobs / most, 2),
            "good": round(100 * drain.succeeded / most, 2),
            "title": f"{drain.started_at:%Y-%m-%d %H:%M} UTC: {drain.jobs:,} jobs, {drain.succeeded:,} succeeded",
        }
        for place, drain in enumerate(drains)
    ]


def _bill_rows(bill: Bill, by: Dimension) -> Iterator[str]:
    """A line per name, as a spreadsheet reads them; no cell is a formula."""
    head = (
        by, "attempts", "accepted", "rejected", "dead", "busy_seconds", "useful_seconds", "wasted_seconds",
        "idle_seconds", "cost", "wasted_cost", "currency",
    )  # fmt: skip
    yield csv_line(head)
    for name, line in bill.by(by).items():
        used = line.usage
        yield csv_line(
            (
                name, used.attempts, used.accepted, used.rejected, used.dead, used.busy_seconds, used.useful_seconds,
                used.wasted_seconds, line.idle_seconds, line.cost, line.wasted_cost, bill.prices.currency,
            )
        )  # fmt: skip
