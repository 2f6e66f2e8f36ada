"""`thothy queue`: pause, resume, status."""

from __future__ import annotations

import time
from dataclasses import asdict
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from thothy_ai.cli.shell import INTERRUPTED, AsJson, check_note, database, fail, usage
from thothy_ai.cli.views import times
from thothy_ai.cli.views.tables import Column, count, print_json, print_text, printable, table

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from thothy_ai.queue.status import QueueStatus

app = typer.Typer(no_args_is_help=True, help="Pause, resume and inspect the queue.")


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
    if timeout is not None and not wait:
        usage("--timeout needs --wait")
    check_note("--note", note)
    with database() as engine:
        said = _pause(engine, note)
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
    from thothy_ai.cli.views.watch import paused_since
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
    from thothy_ai.cli.views.watch import paused_since
    from thothy_ai.queue.status import queue_status

    with database() as engine:
        now = queue_status(engine)
    if as_json:
        return print_json({**asdict(now), "open": now.open, "oldest_age_seconds": now.oldest_age})
    if now.paused:
        since = paused_since(now.changed_at, now.note)
        print_text(f"The queue has been {since}. `thothy queue resume` resumes dispatching.")
    return _print_states(now) if now.open else typer.echo("The queue is empty.")


def _print_states(now: QueueStatus) -> None:
    from thothy_ai.cli.views.watch import waiting_for

    heads = [Column("state"), *map(_number, ("jobs", "oldest waits", "delayed", "deadline < 1 h", "deadline < 24 h"))]
    rows = [
        [name, f"{at.jobs:,}", times.spell(at.due_age), f"{at.delayed:,}", f"{at.due_1h:,}", f"{at.due_24h:,}"]
        for name, at in ((name, now[name]) for name in ("queued", "dispatched", "running"))
    ]
    table("", heads, rows)
    for name, jobs in now.unserved.items():
        print_text(f"{waiting_for(jobs, name, now.unserved_aliases.get(name))}.")
    if others := now.unserved_others:
        typer.echo(f"{waiting_for(others)}.")
    if expired := now["running"].expired_leases:
        typer.echo(f"{count(expired, 'lease')} expired. `thothy doctor --only queue` says why.")


def _number(head: str) -> Column:
    return Column(head, number=True)


def _pause(engine: Engine, note: str | None) -> str:
    """Pause the queue, and say whether it was."""
    from thothy_ai.cli.views.watch import paused_since
    from thothy_ai.queue.control import set_paused

    before = set_paused(engine, paused=True, note=note)
    if not before.paused:
        return "Paused."
    since = f"Already {paused_since(before.changed_at, before.note)}"
    return f"{since}; the note is now: {printable(note)}." if note and note != before.note else f"{since}."


def _wait(engine: Engine, timeout: float | None) -> None:
    from thothy_ai.admin.pause import until_idle
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
