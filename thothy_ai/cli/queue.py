"""`thothy queue`: pause, resume, drain, status."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Annotated

import typer

from thothy_ai.cli import times
from thothy_ai.cli.shell import AsJson, database, fail, print_json, printable, table

app = typer.Typer(no_args_is_help=True, help="Pause, resume, drain and look at the queue.")


@app.command()
def pause(note: Annotated[str | None, typer.Option(help="Why; shown by `thothy queue status`.")] = None) -> None:
    """Stop dispatching. Jobs that are dispatched or running finish; enqueueing goes on.

    Example: thothy queue pause --note "GPU maintenance"
    """
    from thothy_ai.queue.control import set_paused

    with database() as engine:
        set_paused(engine, paused=True, note=note)
    typer.echo("Paused. `thothy queue resume` lets it run again.")


@app.command()
def resume() -> None:
    """Let a paused queue run again.

    Example: thothy queue resume
    """
    from thothy_ai.queue.control import set_paused

    with database() as engine:
        set_paused(engine, paused=False)
    typer.echo("Resumed.")


@app.command()
def drain(
    note: Annotated[str | None, typer.Option(help="Why; shown by `thothy queue status`.")] = None,
    timeout: Annotated[float | None, typer.Option(min=0, help="Seconds to wait for what runs. Default: any.")] = None,
) -> None:
    """Stop admitting jobs, let those that run finish, and say when nothing runs. Enqueueing goes on.

    Example: thothy queue drain --note "new worker image" --timeout 600
    """
    from thothy_ai.admin.pause import pause_and_wait
    from thothy_ai.queue.status import queue_status

    begun, said = time.monotonic(), -1
    with database() as engine:
        for running in pause_and_wait(engine, note=note):
            if running != said:
                typer.echo(f"Nothing new is admitted; {running} jobs run.")
                said = running
            if running and timeout is not None and time.monotonic() - begun >= timeout:
                fail(f"{running} jobs still run after {timeout:g} s; the queue stays paused")
        waiting = queue_status(engine).open
    typer.echo(f"Drained: nothing runs, {waiting} jobs wait. `thothy queue resume` lets them run.")


@app.command()
def status(as_json: AsJson = False) -> None:
    """Show how deep the queue is, how long the oldest job has waited, and what is due soon.

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
    heads = ["state", "jobs#", "oldest waits", "delayed#", "due in 1 h#", "due in 24 h#", "lease ran out#"]
    rows = [
        [name, now[name].jobs, times.spell(now[name].due_age), now[name].delayed, now[name].due_1h,
         now[name].due_24h, now[name].expired_leases]
        for name in ("queued", "dispatched", "running")
    ]  # fmt: skip
    return table("", heads, rows)
