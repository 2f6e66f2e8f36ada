"""`thothy report` and `thothy drain`: what a window of time finished, and watching the queue until it is empty."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from thothy_ai.cli import times
from thothy_ai.cli.shell import AsJson, console, database, fail, print_json, usage

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
        datetime | None, typer.Option(parser=times.ago, metavar="TIME", help="End of the window; now if not given.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Report a window of time (the last 24 hours): jobs per GPU-hour, drain time, failure rate, artifact yield.

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
        typer.Option(parser=times.duration, metavar="DURATION", help="Give up after so long: 90s, 2h."),
    ] = None,
    since: Since = None,
    as_json: AsJson = False,
) -> None:
    """Watch the queue until it is empty, then print the drain report, from the oldest open job on.

    Example: thothy drain --timeout 2h
    """
    from thothy_ai.admin.report import drain_report
    from thothy_ai.cli.watch import watch

    with database() as engine:
        seen = watch(engine, console(stderr=True), timeout.total_seconds() if timeout else None)
        _print(drain_report(engine, since or seen.since), as_json)
    if seen.open:
        fail(f"{seen.open} jobs are still open" + (f" after {times.spell(timeout.total_seconds())}" if timeout else ""))


def _print(result: DrainReport, as_json: bool) -> None:
    from thothy_ai.cli.report_view import render

    if as_json:
        print_json(result.to_json())
    else:
        console().print(render(result))
