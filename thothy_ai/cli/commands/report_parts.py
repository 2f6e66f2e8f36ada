"""`thothy report bill`, `thothy report drains` and `thothy report check`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from thothy_ai.cli.commands.report import Since, Until, prices, window_start, write_page
from thothy_ai.cli.shell import AsJson, database
from thothy_ai.cli.views import times
from thothy_ai.cli.views.tables import count, print_json, print_text, terminal_width

if TYPE_CHECKING:
    from thothy_ai.admin.billing.bill import Bill
    from thothy_ai.admin.billing.drains import Drain

WEEK = timedelta(days=7)
FOUND = 1  # exit code
NO_LIMIT = 10_000  # columns


class By(StrEnum):
    """What a bill may be divided by."""

    KIND = "kind"
    MODEL = "model"
    TENANT = "tenant"
    HOUR = "hour"


def bill(
    since: Since = None,
    until: Until = None,
    by: Annotated[By, typer.Option(help="Dimension to divide the bill by.")] = By.KIND,
    as_json: AsJson = False,
) -> None:
    """Show what each kind, model, tenant or hour used and cost, idle time and restated hours (default: 7 days).

    Hours are closed an hour after their end. Usage that becomes known later restates them, and the bill says so.

    Example: thothy report bill --since 30d --by tenant
    """
    from thothy_ai.admin.report import drain_report
    from thothy_ai.cli.views.bill import dimension_lines, heading, restated_lines

    start = window_start(since, until, WEEK)
    with database() as engine:
        read = drain_report(engine, start, until, prices())
    if as_json:
        return print_json(_bill_json(read.bill, by, read.since, read.until))
    typer.echo(heading(read.bill, read.unit))
    for line in dimension_lines(read.bill, by.value, read.unit, terminal_width() or NO_LIMIT):
        typer.echo(line)
    for line in restated_lines(read.bill, read.unit):
        typer.echo(line)
    return None


def _bill_json(read: Bill, by: By, since: datetime, until: datetime) -> dict[str, object]:
    lines = {name: line.to_json() for name, line in read.by(by.value).items()}
    return {"since": times.utc(since), "until": times.utc(until), **read.to_json(), f"by_{by.value}": lines}


def drains(
    since: Since = None,
    until: Until = None,
    html: Annotated[
        Path | None,
        typer.Option("--html", metavar="FILE", help="Also write the drains with plots to an HTML file."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the periods in which the queue was not empty, as the reaper recorded them (default: 7 days).

    Example: thothy report drains --since 24h
    """
    from thothy_ai.admin.billing.drains import list_drains
    from thothy_ai.cli.views.drains import print_drains

    start, end = window_start(since, until, WEEK), until or datetime.now(UTC)
    with database() as engine:
        found = list_drains(engine, start, end)
    if html:
        write_page(html, lambda: _page(found, start, end))
    if as_json:
        return print_json([drain.to_json() for drain in found])
    if not found:
        return print_text(f"No drain is recorded from {times.local(start)} to {times.local(end)}.")
    return print_drains(found)


def _page(found: list[Drain], since: datetime, until: datetime) -> str:
    from thothy_ai.cli.views.report_html.drains import render

    return render(found, since, until)


def check(since: Since = None, until: Until = None, as_json: AsJson = False) -> None:
    """Check that attempts are billed for the seconds that engines were busy, within 1 %, and that closed hours contain
    all of their attempts (default: 7 days). Exit with 1 if not.

    Example: thothy report check --since 30d
    """
    from thothy_ai.admin.billing.check import check_bill

    start, end = window_start(since, until, WEEK), until or datetime.now(UTC)
    with database() as engine:
        checked = check_bill(engine, start, end)
    if as_json:
        print_json(checked.to_json())
    else:
        settled = sum(of.settled for of in checked.sessions)
        typer.echo(
            f"{count(settled, 'settled engine session')}: busy for {checked.busy_seconds:,.1f} s,"
            f" billed for {checked.billed_seconds:,.1f} s; {len(checked.sessions) - settled} not settled yet."
        )
        for finding in checked.findings:
            print_text(f"- {finding}")
    if checked.findings:
        raise typer.Exit(FOUND)
