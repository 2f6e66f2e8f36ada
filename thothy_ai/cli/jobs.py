"""`thothy jobs list`, `show`, `retry` and `cancel`."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any
from uuid import UUID

import typer

from thothy_ai.cli import times
from thothy_ai.cli.shell import AsJson, database, fail, usage
from thothy_ai.cli.tables import cell, console, json_text, print_json, table
from thothy_ai.db.states import JobState

app = typer.Typer(no_args_is_help=True, help="List, show, retry and cancel jobs.")


class Retryable(StrEnum):
    """The final states that a job can be retried from."""

    DEAD = "dead"
    CANCELLED = "cancelled"
    EXPIRED = "expired"


Kind = Annotated[str | None, typer.Option(help="Only jobs of this kind.")]
JobIds = Annotated[list[UUID] | None, typer.Argument(metavar="[ID]...", help="Job ids.", show_default=False)]
Since = Annotated[
    datetime | None,
    typer.Option(parser=times.ago, metavar="TIME", help="Only entries after this time: 2h, 3d, 2026-11-21T06:00."),
]


@app.command("list")
def list_(
    state: Annotated[list[JobState] | None, typer.Option(help="Only jobs in this state. May be repeated.")] = None,
    kind: Kind = None,
    since: Since = None,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of jobs.")] = 20,
    as_json: AsJson = False,
) -> None:
    """List jobs, newest first.

    Example: thothy jobs list --state dead --kind translation --since 2h
    """
    from thothy_ai.admin.jobs import list_jobs

    with database() as engine:
        jobs = list_jobs(engine, states=state, kind=kind, since=since, limit=limit)
    if as_json:
        return print_json(jobs)
    if not jobs:
        return typer.echo("No jobs.")
    columns = ["id", "kind", "state", "priority", "attempt", "reason", "enqueued_at", "finished_at"]
    heads = ["id", "kind", "state", "priority#", "attempt#", "reason", "enqueued", "finished"]
    return table("", heads, [[job[column] for column in columns] for job in jobs])


@app.command()
def show(job_id: Annotated[UUID, typer.Argument(metavar="ID")], as_json: AsJson = False) -> None:
    """Show a job in full: its request, attempts, artifacts and events.

    Example: thothy jobs show 019a9e2b-7c44-7d1e-9a53-0c8b3d9a4f10
    """
    from thothy_ai.admin.jobs import show_job

    with database() as engine:
        job = show_job(engine, job_id)
    if as_json:
        return print_json(job)
    return print_job(job)


@app.command()
def retry(
    job_ids: JobIds = None,
    state: Annotated[Retryable | None, typer.Option(help="All jobs in this state, instead of job ids.")] = None,
    kind: Kind = None,
    reason: Annotated[str | None, typer.Option(help="With --state: only jobs with this reason code.")] = None,
    deadline: Annotated[
        datetime | None,
        typer.Option(
            parser=times.ahead, metavar="TIME", help="New deadline. Default: the old one unless it has passed."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Queue dead, cancelled or expired jobs again. Their history is kept; their failure count restarts at zero.

    Example: thothy jobs retry --state dead --reason lease_lost
    """
    from thothy_ai.admin import jobs as admin_jobs

    if bool(job_ids) == bool(state):
        usage("pass either job ids or --state (optionally with --kind and --reason)")
    if job_ids and (kind or reason):
        usage("--kind and --reason filter --state; they cannot be combined with job ids")
    with database() as engine:
        ids = job_ids or admin_jobs.select_jobs(engine, [state or ""], kind=kind, reason=reason)
        redriven = admin_jobs.redrive(engine, ids, deadline=deadline)
        states = admin_jobs.states_of(engine, ids)
    _report("queued again", ids, redriven, states, as_json)


@app.command()
def cancel(job_ids: JobIds = None, as_json: AsJson = False) -> None:
    """Cancel jobs. A running job is stopped by its worker within a heartbeat.

    Example: thothy jobs cancel 019a9e2b-7c44-7d1e-9a53-0c8b3d9a4f10
    """
    from thothy_ai.admin import jobs as admin_jobs

    if not job_ids:
        usage("pass at least one job id")
    with database() as engine:
        cancelled = admin_jobs.cancel(engine, job_ids)
        states = admin_jobs.states_of(engine, job_ids)
    _report("cancelled", job_ids, cancelled, states, as_json)


def _report(done: str, ids: list[UUID], changed: set[UUID], states: dict[UUID, str], as_json: bool) -> None:
    """Print the number of changed jobs; exit with 1 if a selected job was not changed."""
    unchanged = {job_id: states.get(job_id, "unknown") for job_id in ids if job_id not in changed}
    if as_json:
        print_json({"changed": sorted(changed), "unchanged": {str(job): state for job, state in unchanged.items()}})
    else:
        typer.echo(f"{len(changed)} of {len(ids)} jobs {done}.")
    if unchanged:
        job_id, state = next(iter(unchanged.items()))
        why = "no such job" if state == "unknown" else f"its state is {state}"
        fail(f"{len(unchanged)} of {len(ids)} jobs not {done}; {job_id}: {why}")


def print_job(job: dict[str, Any]) -> None:
    """Print a job in full. `job` is a result of `show_job`."""
    from rich.table import Table
    from rich.text import Text

    lists = ("request", "attempts", "artifacts", "events")
    fields = Table.grid(padding=(0, 2))
    for name, value in job.items():
        if name not in lists:
            fields.add_row(Text(name, style="dim"), Text(cell(value)))
    console().print(fields)
    typer.echo("\nrequest\n" + json_text(job["request"], indent=2))
    for name, columns in {
        "attempts": ["attempt", "outcome", "reason", "detail", "worker", "started_at", "finished_at", "output_tokens"],
        "artifacts": ["attempt", "locale", "verdict", "reason", "text"],
        "events": ["at", "event", "detail"],
    }.items():
        if job[name]:
            table(name, columns, [[row[column] for column in columns] for row in job[name]])
