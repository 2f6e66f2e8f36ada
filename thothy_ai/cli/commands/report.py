"""`thothy report`: figures of a time window, its bill, recorded drains, and a forecast."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from thothy_ai.cli.inputs import times
from thothy_ai.cli.shell import FAILED, LONG_SECONDS, AsJson, database, fail, load_settings, usage
from thothy_ai.cli.views.tables import PIPE_WIDTH, console, count, print_json, print_text, printable, terminal_width
from thothy_ai.cli.views.times import local, utc

if TYPE_CHECKING:
    from thothy_ai.admin.report.bill import Prices
    from thothy_ai.admin.report.drain_report import DrainReport

DAY, WEEK = timedelta(hours=24), timedelta(days=7)
NO_LIMIT = 10_000  # columns

app = typer.Typer(name="report")

Since = Annotated[
    datetime | None,
    typer.Option(parser=times.since, metavar="TIME", help="Start of the window: 2h, 3d, 2026-11-21T06:00."),
]
Until = Annotated[
    datetime | None, typer.Option(parser=times.ago, metavar="TIME", help="End of the window. Default: now.")
]


class By(StrEnum):
    """What a bill may be divided by."""

    KIND = "kind"
    MODEL = "model"
    TENANT = "tenant"
    KEY = "key"
    HOUR = "hour"


@app.callback(invoke_without_command=True)
def report(
    context: typer.Context,
    since: Since = None,
    until: Until = None,
    html: Annotated[
        Path | None,
        typer.Option("--html", metavar="FILE", help="Also write the report with plots to an HTML file."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Report jobs per GPU-hour, drain time, failure rate and yield of a time window (default: 24 hours).

    Example: thothy report --since 2h
    """
    if context.invoked_subcommand is not None:
        if since or until or html or as_json:
            usage(f"options of `thothy report {context.invoked_subcommand}` follow its name")
        return None
    from thothy_ai.admin.report.drain_report import drain_report
    from thothy_ai.admin.report.timeline import report_with_timeline

    start = _window_start(since, until, DAY)
    if html is None:
        with database(LONG_SECONDS) as engine:
            return print_report(drain_report(engine, start, until, prices()), as_json)
    _need_matplotlib()
    from thothy_ai.cli.views.report_html.page import render

    with database(LONG_SECONDS) as engine:
        result, timeline = report_with_timeline(engine, start, until, prices())
    _write_page(html, render(result, timeline))
    return print_report(result, as_json)


@app.command()
def bill(
    since: Since = None,
    until: Until = None,
    by: Annotated[By, typer.Option(help="Dimension to divide the bill by.")] = By.KIND,
    as_json: AsJson = False,
) -> None:
    """Show what each kind, model, tenant, hour or key used and cost, idle time and restated hours (default: 7 days).

    Requests over HTTP are of the kind `interactive`, and the only ones with keys.

    Hours are closed an hour after their end. Usage that becomes known later restates them, and the bill says so.

    Example: thothy report bill --since 30d --by tenant
    """
    from thothy_ai.admin.report.drain_report import drain_report
    from thothy_ai.cli.views.bill import declared_lines, dimension_lines, heading, restated_lines, undecided_lines

    start = _window_start(since, until, WEEK)
    with database(LONG_SECONDS) as engine:
        read = drain_report(engine, start, until, prices())
    if as_json:
        window = {"since": utc(read.since), "until": utc(read.until)}
        lines = {name: line.to_json() for name, line in read.bill.by(by.value).items()}
        return print_json({**window, **read.bill.to_json(), f"by_{by.value}": lines})
    print_text(heading(read.bill, read.unit))
    for line in dimension_lines(read.bill, by.value, terminal_width() or NO_LIMIT):
        typer.echo(line)
    for line in (*undecided_lines(read.bill), *declared_lines(read.bill), *restated_lines(read.bill, read.unit)):
        print_text(line)
    return None


@app.command()
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
    from thothy_ai.admin.report.recorded_drains import list_drains
    from thothy_ai.cli.views.drains import print_drains

    start, end = _window_start(since, until, WEEK), until or datetime.now(UTC)
    with database(LONG_SECONDS) as engine:
        found = list_drains(engine, start, end)
    if html:
        _need_matplotlib()
        from thothy_ai.cli.views.report_html.drains import render

        _write_page(html, render(found, start, end))
    if as_json:
        return print_json([drain.to_json() for drain in found])
    if not found:
        return print_text(f"No drain is recorded from {local(start)} to {local(end)}.")
    return print_drains(found)


@app.command()
def check(since: Since = None, until: Until = None, as_json: AsJson = False) -> None:
    """Check that attempts and requests past the queue account for the seconds that engines were busy, within 1 %, and
    that closed hours contain all of their attempts (default: 7 days). Exit with 1 if not.

    Example: thothy report check --since 30d
    """
    from thothy_ai.admin.report.check import check_bill

    start, end = _window_start(since, until, WEEK), until or datetime.now(UTC)
    with database(LONG_SECONDS) as engine:
        checked = check_bill(engine, start, end)
    if as_json:
        print_json(checked.to_json())
    else:
        settled = sum(of.settled for of in checked.sessions)
        print_text(
            f"{count(settled, 'settled engine session')}: busy for {checked.busy_seconds:,.1f} s,"
            f" billed for {checked.billed_seconds:,.1f} s, past the queue for {checked.direct_seconds:,.1f} s"
            f" ({checked.interactive_seconds:,.1f} s over HTTP),"
            f" unattributed: {checked.unattributed_seconds:,.1f} s; {len(checked.sessions) - settled} not settled yet."
        )
        for finding in checked.findings:
            print_text(f"- {finding}")
    if checked.findings:
        raise typer.Exit(FAILED)


@app.command()
def forecast(as_json: AsJson = False) -> None:
    """Forecast when the queue will be empty and which jobs will be late, with the error of earlier forecasts.

    It covers the jobs that are due now, with their retries and follow-up jobs, and assumes that no others arrive.

    Example: thothy report forecast
    """
    from thothy_ai.cli.views.forecast import print_forecast
    from thothy_ai.queue.forecast.store import current, past_accuracy

    with database(LONG_SECONDS) as engine:
        made = current(engine, load_settings().publish_by)
        past = past_accuracy(engine)
    return (
        print_json({**made.to_json(), "past": {**asdict(past), "p90_believed": past.p90_believed}})
        if as_json
        else print_forecast(made, past)
    )


def prices() -> Prices:
    """The prices of this process' settings."""
    from thothy_ai.admin.report.bill import Prices

    return Prices.of(load_settings())


def print_report(result: DrainReport, as_json: bool, drained: str | None = None) -> None:
    """Print a drain report. `drained` replaces the drain time in the headline."""
    from thothy_ai.cli.views.report import ReportText

    if as_json:
        return print_json(result.to_json())
    out = console()
    if not out.is_terminal:
        out.width = PIPE_WIDTH
    return out.print(ReportText(result, drained))


def check_window(since: datetime, until: datetime | None) -> None:
    """Refuse a window that begins in the future, or ends before it begins. Raises `BadParameter`."""
    if since > datetime.now(UTC):
        usage(f"--since {local(since)} is in the future")
    times.check_order(since, until)


def _window_start(since: datetime | None, until: datetime | None, length: timedelta) -> datetime:
    start = since or (until or datetime.now(UTC)) - length
    check_window(start, until)
    return start


def _need_matplotlib() -> None:
    if find_spec("matplotlib") is None:
        fail("--html needs matplotlib: pip install 'thothy-ai[report]'")


def _write_page(file: Path, page: str) -> None:
    try:
        file.write_text(page, encoding="utf-8")
    except OSError as error:
        fail(f"cannot write {file}: {error.strerror}")
    typer.echo(f"Report written to {printable(str(file))}.", err=True)
