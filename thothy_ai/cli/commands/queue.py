"""`thothy queue`: pause, resume, status."""

from __future__ import annotations

import time
from dataclasses import asdict
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from thothy_ai.cli.inputs import times
from thothy_ai.cli.shell import INTERRUPTED, AsJson, check_note, database, fail, usage
from thothy_ai.cli.views.queue import paused_since, print_states
from thothy_ai.cli.views.tables import count, print_json, print_text, printable

if TYPE_CHECKING:
    from sqlalchemy import Engine

app = typer.Typer(name="queue", no_args_is_help=True, help="Pause, resume and inspect the queue.")


@app.command()
def pause(
    note: Annotated[str | None, typer.Option(help="Reason, shown by `thothy queue status`.")] = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Take dispatched jobs back and wait until no job is running.")
    ] = False,
    timeout: Annotated[
        timedelta | None,
        typer.Option(
            parser=times.limit,
            metavar="DURATION",
            help="With --wait: maximum time to wait for running jobs, 10m, or 600 for seconds. Default: no limit.",
        ),
    ] = None,
) -> None:
    """Stop dispatching. Jobs that are dispatched or running finish; producers can still enqueue.

    With --wait, dispatched jobs that no worker has claimed go back to the queue, and the command ends when no
    job is running.

    Example: thothy queue pause --wait --note "new worker image" --timeout 10m
    """
    from thothy_ai.queue.control import set_paused

    if timeout is not None and not wait:
        usage("--timeout needs --wait")
    check_note("--note", note)
    with database() as engine:
        before = set_paused(engine, paused=True, note=note)
        said = "Paused."
        if before.paused:
            renamed = f"; the note is now: {printable(note)}" if note and note != before.note else ""
            said = f"Already {paused_since(before.changed_at, before.note)}{renamed}."
        if not wait:
            return print_text(f"{said} `thothy queue resume` resumes dispatching.")
        typer.echo(said)
        try:
            return _wait(engine, None if timeout is None else timeout.total_seconds())
        except KeyboardInterrupt:
            typer.echo("Stopped waiting; the queue stays paused.", err=True)
            raise typer.Exit(INTERRUPTED) from None


@app.command()
def resume() -> None:
    """Resume dispatching from a paused queue.

    Example: thothy queue resume
    """
    from thothy_ai.queue.control import set_paused

    with database() as engine:
        before = set_paused(engine, paused=False)
    if before.paused:
        print_text(f"Resumed. The queue had been {paused_since(before.changed_at, before.note)}.")
    else:
        typer.echo("The queue was not paused.")


@app.command()
def status(as_json: AsJson = False) -> None:
    """Show the queue's depth, how long the oldest job has waited, and which deadlines are near.

    Example: thothy queue status
    """
    from thothy_ai.queue.status import queue_status

    with database() as engine:
        now = queue_status(engine)
    if as_json:
        return print_json({**asdict(now), "open": now.open, "oldest_age_seconds": now.oldest_age})
    if now.paused:
        since = paused_since(now.changed_at, now.note)
        print_text(f"The queue has been {since}. `thothy queue resume` resumes dispatching.")
    return print_states(now) if now.open else typer.echo("The queue is empty.")


def _wait(engine: Engine, timeout: float | None) -> None:
    from thothy_ai.admin.drain import until_idle
    from thothy_ai.queue.status import queue_status

    begun, last = time.monotonic(), None
    for running in until_idle(engine):
        if running and running != last:
            typer.echo(f"{_still_running(running)} …")
            last = running
        if running and timeout is not None and time.monotonic() - begun >= timeout:
            fail(f"{_still_running(running)} after {timeout:g} s; the queue stays paused")
    waiting = queue_status(engine).open
    left = f"{count(waiting, 'job')} {'waits' if waiting == 1 else 'wait'}" if waiting else "none waits"
    print_text(f"No job is running, and {left}. `thothy queue resume` resumes dispatching.")


def _still_running(running: int) -> str:
    return f"{count(running, 'job')} {'is' if running == 1 else 'are'} still running"
