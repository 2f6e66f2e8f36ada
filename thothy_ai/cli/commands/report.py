"""`thothy report`: figures of a time window. `thothy drain`: watch the queue until it is empty, then report."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from thothy_ai.cli.shell import INTERRUPTED, UNSERVED, AsJson, database, fail, load_settings, usage
from thothy_ai.cli.views import times
from thothy_ai.cli.views.tables import PIPE_WIDTH, console, count, print_json, printable

if TYPE_CHECKING:
    from thothy_ai.admin.billing.bill import Prices
    from thothy_ai.admin.report import DrainReport
    from thothy_ai.cli.views.watch import DrainProgress

DAY = timedelta(hours=24)

app = typer.Typer()
reports = typer.Typer()
app.add_typer(reports, name="report")

Since = Annotated[
    datetime | None,
    typer.Option(parser=times.since, metavar="TIME", help="Start of the window: 2h, 3d, 2026-11-21T06:00."),
]
Until = Annotated[
    datetime | None, typer.Option(parser=times.ago, metavar="TIME", help="End of the window. Default: now.")
]


@reports.callback(invoke_without_command=True)
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
    """Report jobs per GPU-hour, drain time, failure rate and artifact yield of a time window (default: 24 hours).

    Example: thothy report --since 2h
    """
    if context.invoked_subcommand is not None:
        if since or until or html or as_json:
            usage(f"options of `thothy report {context.invoked_subcommand}` follow its name")
        return
    from thothy_ai.admin.report import drain_report

    start = window_start(since, until)
    if html:
        result = _write_html(html, start, until)
    else:
        with database() as engine:
            result = drain_report(engine, start, until, prices())
    _print(result, as_json)


@app.command()
def drain(
    timeout: Annotated[
        timedelta | None,
        typer.Option(
            parser=times.limit,
            metavar="DURATION",
            help="Maximum time to wait: 2h, or a number of seconds; 0s looks once.",
        ),
    ] = None,
    since: Since = None,
    include_delayed: Annotated[
        bool, typer.Option("--include-delayed", help="Wait for jobs that are not due yet, too (--not-before).")
    ] = False,
    model_timeout: Annotated[
        timedelta,
        typer.Option(
            parser=times.limit,
            metavar="DURATION",
            help="Maximum time to wait once no engine serves any job that is left: 5m, or seconds; 0s: not at all.",
        ),
    ] = "1m",  # type: ignore[assignment] # Typer parses it
    as_json: AsJson = False,
) -> None:
    """Watch the queue until no job is due, then print the drain report, starting at the oldest open job.

    Jobs that were enqueued for a later time (--not-before) and are not due within a minute are left in the queue. If
    only jobs are left whose model no engine serves, it waits a minute (--model-timeout) and exits with 3.

    Example: thothy drain --timeout 2h
    """
    from thothy_ai.admin.report import drain_report
    from thothy_ai.cli.views.watch import watch

    if since:
        _check_window(since, None)
    with database() as engine:
        try:
            seconds = timeout.total_seconds() if timeout is not None else None
            grace = model_timeout.total_seconds()
            shown = console(stderr=True)
            watched = watch(engine, shown, seconds, include_delayed=include_delayed, model_timeout=grace)
        except KeyboardInterrupt:
            typer.echo("Stopped watching; the queue keeps draining.", err=True)
            raise typer.Exit(INTERRUPTED) from None
        if since or as_json or watched.open or watched.finished:
            _print(drain_report(engine, since or watched.since, None, prices()), as_json, _gave_up(watched, timeout))
    _conclude(watched, timeout, quiet=as_json)


def prices() -> Prices:
    """The prices of this process' settings."""
    from thothy_ai.admin.billing.bill import Prices

    return Prices.of(load_settings())


def window_start(since: datetime | None, until: datetime | None, length: timedelta = DAY) -> datetime:
    """The start of a window: `since`, or so long before its end. A window that is none is a usage error."""
    start = since or (until or datetime.now(UTC)) - length
    _check_window(start, until)
    return start


def write_page(file: Path, page: Callable[[], str]) -> None:
    """Write an HTML page, which needs matplotlib."""
    if find_spec("matplotlib") is None:
        fail("--html needs matplotlib: pip install 'thothy-ai[report]'")
    text = page()
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        fail(f"cannot write {file}: {error.strerror}")
    typer.echo(f"Report written to {printable(str(file))}.", err=True)


def _write_html(file: Path, since: datetime, until: datetime | None) -> DrainReport:
    """Write the page and return the report in it."""
    read: list[DrainReport] = []

    def page() -> str:
        from thothy_ai.admin.timeline import report_with_timeline
        from thothy_ai.cli.views.report_html.page import render

        with database() as engine:
            result, timeline = report_with_timeline(engine, since, until, prices())
        read.append(result)
        return render(result, timeline)

    write_page(file, page)
    return read[0]


def _check_window(since: datetime, until: datetime | None) -> None:
    if since > datetime.now(UTC):
        usage(f"--since {times.local(since)} is in the future")
    times.check_order(since, until)


def _gave_up(watched: DrainProgress, timeout: timedelta | None) -> str | None:
    """How the watching ended if jobs were left; None if none were."""
    if watched.stranded:
        return f"ended with {count(watched.open, 'job')} left that no engine can run"
    if not watched.open or timeout is None:
        return None
    return f"gave up after {times.spell(timeout.total_seconds())} with {count(watched.open, 'job')} open"


def _conclude(watched: DrainProgress, timeout: timedelta | None, *, quiet: bool) -> None:
    """Say what is left, if anything. With `quiet`, standard output holds nothing except the report."""
    from thothy_ai.cli.views.watch import obstacle_sentences, unserved_sentences

    if watched.stranded:
        named = unserved_sentences(watched.obstacles) if watched.obstacles else ()
        fail(f"no engine can run what is left. {' '.join(named)}", UNSERVED)
    if watched.open:
        waited = f" after {times.spell(timeout.total_seconds())}" if timeout is not None else ""
        causes = " ".join(obstacle_sentences(watched.obstacles)) if watched.obstacles else ""
        left = f"{count(watched.open, 'job')} {'is' if watched.open == 1 else 'are'} still open{waited}"
        fail(f"{left}. {causes}" if causes else left)
    if watched.later:
        due, one = times.local(watched.next_due), watched.later == 1
        jobs = f"1 job is not due before {due}" if one else f"{watched.later:,} jobs are not due yet, the next at {due}"
        typer.echo(f"{jobs}. `thothy drain --include-delayed` waits for {'it' if one else 'them'}.", err=quiet)
    elif not watched.finished and not quiet:
        typer.echo("The queue is empty.")


def _print(result: DrainReport, as_json: bool, drained: str | None = None) -> None:
    from thothy_ai.cli.views.report import render

    if as_json:
        return print_json(result.to_json())
    out = console()
    if not out.is_terminal:
        out.width = PIPE_WIDTH
    return out.print(render(result, drained))
