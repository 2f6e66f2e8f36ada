"""`thothy queue`: pause, resume, status."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from thothy_ai.cli import times
from thothy_ai.cli.shell import AsJson, database, fail, usage
from thothy_ai.cli.tables import print_json, printable, table

if TYPE_CHECKING:
    from sqlalchemy import Engine

app = typer.Typer(no_args_is_help=True, help="Pause, resume and inspect the queue.")


@app.command()
def pause(
    note: Annotated[str | None, typer.Option(help="Why; shown by `thothy queue status`.")] = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Take dispatched jobs back and wait until no job is running.")
    ] = False,
    timeout: Annotated[
        float | None, typer.Option(min=0, help="With --wait: seconds to wait for running jobs. Default: no limit.")
    ] = None,
) -> None:
    """Stop dispatching. Jobs that are dispatched or running finish; enqueueing goes on.

    With --wait, dispatched jobs that no worker has claimed go back to the queue, and the command ends when no
    job is running.

    Example: thothy queue pause --wait --note "new worker image" --timeout 600
    """
    from thothy_ai.queue.control import set_paused

    if timeout is not None and not wait:
        usage("--timeout needs --wait")
    with database() as engine:
        if wait:
            _pause_and_wait(engine, note, timeout)
        else:
            set_paused(engine, paused=True, note=note)
            typer.echo("Paused. `thothy queue resume` resumes dispatching.")


@app.command()
def resume() -> None:
    """Resume dispatching from a paused queue.

    Example: thothy queue resume
    """
    from thothy_ai.queue.control import set_paused

    with database() as engine:
        set_paused(engine, paused=False)
    typer.echo("Resumed.")


@app.command()
def status(as_json: AsJson = False) -> None:
    """Show the queue's depth, how long the oldest job has waited, and what is due soon.

    Example: thothy queue status
    """
    from thothy_ai.queue.status import QueueStatus, queue_status

    with database() as engine:
        now: QueueStatus = queue_status(engine)
    if as_json:
        return print_json({**asdict(now), "open": now.open, "oldest_age_seconds": now.oldest_age})
    if now.paused:
        why = f": {printable(now.note)}" if now.note else ""
        typer.echo(f"Paused since {times.local(now.changed_at)}{why}")
    if not now.open:
        return typer.echo("The queue is empty.")
    heads = ["state", "jobs#", "oldest waits", "delayed#", "due in 1 h#", "due in 24 h#", "expired leases#"]
    rows = [
        [name, now[name].jobs, times.spell(now[name].due_age), now[name].delayed, now[name].due_1h,
         now[name].due_24h, now[name].expired_leases]
        for name in ("queued", "dispatched", "running")
    ]  # fmt: skip
    return table("", heads, rows)


def _pause_and_wait(engine: Engine, note: str | None, timeout: float | None) -> None:
    from thothy_ai.admin.pause import pause_and_wait
    from thothy_ai.queue.status import queue_status

    begun, last = time.monotonic(), None
    for running in pause_and_wait(engine, note=note):
        if running != last:
            typer.echo(f"Dispatching has stopped; {running} jobs are still running.")
            last = running
        if running and timeout is not None and time.monotonic() - begun >= timeout:
            fail(f"{running} jobs are still running after {timeout:g} s; the queue stays paused")
    waiting = queue_status(engine).open
    typer.echo(f"Paused: no job is running, {waiting} are waiting. `thothy queue resume` resumes dispatching.")
