"""`thothy drain`: watch the queue until it is empty, then report."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from thothy_ai.admin.durations import spell
from thothy_ai.cli.commands.report import Since, check_window, prices, print_report
from thothy_ai.cli.inputs import times
from thothy_ai.cli.shell import INTERRUPTED, UNSERVED, AsJson, database, fail
from thothy_ai.cli.views.queue import obstacle_sentences, unserved_sentences
from thothy_ai.cli.views.tables import console, count
from thothy_ai.cli.views.times import local

if TYPE_CHECKING:
    from thothy_ai.admin.drain import DrainStatus

app = typer.Typer()


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
    from thothy_ai.admin.drain import watch_drain
    from thothy_ai.admin.report.drain_report import drain_report
    from thothy_ai.cli.views.drain import show_drain

    if since:
        check_window(since, None)
    limit = None if timeout is None else timeout.total_seconds()
    gave_up = None
    with database() as engine:
        grace = model_timeout.total_seconds()
        looks = watch_drain(engine, limit, include_delayed=include_delayed, model_timeout=grace)
        try:
            last = show_drain(console(stderr=True), looks)
        except KeyboardInterrupt:
            typer.echo("Stopped watching; the queue keeps draining.", err=True)
            raise typer.Exit(INTERRUPTED) from None
        if last.stranded:
            gave_up = f"ended with {count(last.open, 'job')} left that no engine can run"
        elif last.open and limit is not None:
            gave_up = f"gave up after {spell(limit)} with {count(last.open, 'job')} open"
        if since or as_json or last.open or last.progress.finished:
            print_report(drain_report(engine, since or last.since, None, prices()), as_json, gave_up)
    _conclude(last, limit, quiet=as_json)


def _conclude(last: DrainStatus, limit: float | None, *, quiet: bool) -> None:
    """Say what is left, and exit with an error if the command waited for it. `quiet`: print only to standard error."""
    if last.stranded:
        named = unserved_sentences(last.obstacles) if last.obstacles else ()
        fail(f"no engine can run what is left. {' '.join(named)}", UNSERVED)
    if last.open:
        waited = f" after {spell(limit)}" if limit is not None else ""
        causes = " ".join(obstacle_sentences(last.obstacles)) if last.obstacles else ""
        left = f"{count(last.open, 'job')} {'is' if last.open == 1 else 'are'} still open{waited}"
        fail(f"{left}. {causes}" if causes else left)
    if later := last.progress.later:
        due = local(last.progress.next_due)
        jobs = f"1 job is not due before {due}" if later == 1 else f"{later:,} jobs are not due yet, the next at {due}"
        them = "it" if later == 1 else "them"
        typer.echo(f"{jobs}. `thothy drain --include-delayed` waits for {them}.", err=quiet)
    elif not last.progress.finished and not quiet:
        typer.echo("The queue is empty.")
