"""`thothy report`: figures of a time window. `thothy drain`: watch the queue until it is empty, then report."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from thothy_ai.cli import times
from thothy_ai.cli.shell import AsJson, database, fail, usage
from thothy_ai.cli.tables import console, print_json

if TYPE_CHECKING:
    from thothy_ai.admin.report import DrainReport

app = typer.Typer()

Since = Annotated[
    datetime | None,
    typer.Option(parser=times.ago, metavar="TIME", help="Start of the window: 2h, 3d, 2026-11-21T06:00."),
]


@app.command()
def report(
    since: Since = None,
    until: Annotated[
        datetime | None, typer.Option(parser=times.ago, metavar="TIME", help="End of the window. Default: now.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Report jobs per GPU-hour, drain time, failure rate and artifact yield of a time window (default: 24 hours).

    Example: thothy report --since 2h
    """
    from thothy_ai.admin.report import drain_report

    start = since or datetime.now(UTC) - timedelta(hours=24)
    if until and until <= start:
        usage("--until must be later than --since")
    with database() as engine:
        _print(drain_report(engine, start, until), as_json)


@app.command()
def drain(
    timeout: Annotated[
        timedelta | None,
        typer.Option(parser=times.duration, metavar="DURATION", help="Maximum time to wait: 90s, 2h."),
    ] = None,
    since: Since = None,
    as_json: AsJson = False,
) -> None:
    """Watch the queue until it is empty, then print the drain report, starting at the oldest open job.

    Example: thothy drain --timeout 2h
    """
    from thothy_ai.admin.report import drain_report
    from thothy_ai.cli.watch import watch

    with database() as engine:
        watched = watch(engine, console(stderr=True), timeout.total_seconds() if timeout else None)
        _print(drain_report(engine, since or watched.since), as_json)
    if watched.open:
        waited = f" after {times.spell(timeout.total_seconds())}" if timeout else ""
        fail(f"{watched.open} jobs are still open{waited}")


def _print(result: DrainReport, as_json: bool) -> None:
    from thothy_ai.cli.report_view import render

    if as_json:
        print_json(result.to_json())
    else:
        console().print(render(result))
