"""`thothy jobs list`, `show` and `watch`; `retry`, `change` and `cancel` are in `job_changes.py`."""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Annotated

import typer

from thothy_ai.cli.commands.job_changes import cancel, change, retry
from thothy_ai.cli.inputs.job_options import MAX_LISTED, Filters, JobId, find_job
from thothy_ai.cli.inputs.parameters import with_fields
from thothy_ai.cli.shell import FAILED, INTERRUPTED, AsJson, database, load_settings
from thothy_ai.cli.views.job import job_json, print_job
from thothy_ai.cli.views.tables import Column, more_exist, print_json, table

if TYPE_CHECKING:
    from thothy_ai.cli.views.watch_job import WatchView
    from thothy_ai.queue.live import TextPiece, TextWatcher

POLL_SECONDS = 0.5  # of `watch`

app = typer.Typer(name="jobs", no_args_is_help=True, help="List, show, retry, change and cancel jobs.")


@app.command("list")
@with_fields
def list_(
    filters: Filters,
    limit: Annotated[int, typer.Option(min=1, max=MAX_LISTED, help="Maximum number of jobs.")] = 20,
    as_json: AsJson = False,
) -> None:
    """List jobs, newest first.

    Their tenants are shown unless all of them are of THOTHY_TENANT.

    Example: thothy jobs list --state dead --kind translation --since 2h
    """
    from thothy_ai.admin.jobs import list_jobs

    with database() as engine:
        jobs = list_jobs(engine, filters.jobs(engine), since=filters.since, until=filters.until, limit=limit + 1)
    if as_json:
        return print_json(jobs[:limit])
    if not jobs:
        return typer.echo(filters.nothing("jobs"))
    own, tenants = load_settings().tenant, Column("tenant", text=True, drop=2)
    columns = {
        "id": Column("id"),
        **({"tenant": tenants} if any(job["tenant"] != own for job in jobs[:limit]) else {}),
        "kind": Column("kind"),
        "state": Column("state"),
        "review": Column("review", drop=8),
        "reason": Column("reason"),
        "attempt": Column("attempt", number=True, drop=5),
        "priority": Column("priority", number=True, drop=6),
        "enqueued_at": Column("enqueued", drop=3),
        "finished_at": Column("finished", drop=7),
        "idempotency_key": Column("key", drop=4 if filters.key is None else 1),
    }
    table("", list(columns.values()), [[job[column] for column in columns] for job in jobs[:limit]])
    return more_exist(len(jobs), limit)


@app.command()
def show(job_id: JobId, as_json: AsJson = False) -> None:
    """Show a job in full: its request, attempts, artifacts, follow-ups, events and cost.

    With THOTHY_PRICE_PER_COMPUTE_HOUR set, the cost is also shown in money.

    Example: thothy jobs show 3d9a4f10
    """
    from thothy_ai.admin.jobs import show_job

    settings = load_settings()
    with database() as engine:
        job = show_job(engine, find_job(engine, job_id))
    return print_json(job_json(job, settings)) if as_json else print_job(job, settings)


app.command()(retry)
app.command()(change)
app.command()(cancel)


@app.command()
def watch(job_id: JobId) -> None:
    """Watch a job until it ends: its states, why it waits, its attempts, and on a terminal its text as it is generated.

    Exit with 0 if it succeeded, and with 1 otherwise. In a pipe, each change is one line, and the artifact the last.

    Example: thothy jobs watch 3d9a4f10
    """
    from thothy_ai.admin.job_watch import JobWatch
    from thothy_ai.cli.views.watch_job import WatchView
    from thothy_ai.db.states import JobState
    from thothy_ai.queue.live import TextWatcher

    try:
        with database() as engine, ExitStack() as stack:
            found, terminal = find_job(engine, job_id), sys.stdout.isatty()
            job, view = JobWatch(engine, found), WatchView(terminal=terminal)
            live = stack.enter_context(closing(TextWatcher(load_settings(), found))) if terminal else None
            piece: TextPiece | None = None
            while True:
                view.show(snapshot := job.look())
                if snapshot.state.terminal:
                    view.end(job.artifact())
                    break
                piece = _show_text(live, view, snapshot.attempt, piece)
    except KeyboardInterrupt:
        typer.echo("\nStopped watching; the job continues.", err=True)
        raise typer.Exit(INTERRUPTED) from None
    if snapshot.state is not JobState.SUCCEEDED:
        raise typer.Exit(FAILED)


def _show_text(live: TextWatcher | None, view: WatchView, attempt: int, held: TextPiece | None) -> TextPiece | None:
    """Show text for `POLL_SECONDS`; returns a piece of an attempt that has not been announced yet."""
    until = time.monotonic() + POLL_SECONDS
    if live is None:
        time.sleep(POLL_SECONDS)
        return None
    piece = held
    while piece is None or piece.attempt <= attempt:
        if piece is not None and piece.attempt == attempt:
            view.text(piece.text)
        if (left := until - time.monotonic()) <= 0:
            return None
        piece = live.next(left)
    return piece
