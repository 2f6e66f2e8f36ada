"""`thothy dead list`, `show`, `redrive` and `purge`: jobs that used up their attempts or cannot succeed."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from getpass import getuser
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer

from thothy_ai.cli import times
from thothy_ai.cli.jobs import JobIds, Since, print_job
from thothy_ai.cli.shell import AsJson, Yes, confirm, database, fail, usage
from thothy_ai.cli.tables import print_json, table

if TYPE_CHECKING:
    from thothy_ai.admin.dead_letters import Group, Selection

app = typer.Typer(no_args_is_help=True, help="Inspect dead jobs, queue them again, or delete them.")

Kinds = Annotated[list[str] | None, typer.Option("--kind", help="Only jobs of this kind. May be repeated.")]
Reasons = Annotated[
    list[str] | None, typer.Option("--reason", help="Only jobs with this reason code. May be repeated.")
]
Until = Annotated[
    datetime | None,
    typer.Option(parser=times.ago, metavar="TIME", help="Only jobs that died before: 2h, 3d, 2026-11-21T06:00."),
]
OlderThan = Annotated[
    timedelta | None,
    typer.Option(parser=times.duration, metavar="DURATION", help="Only jobs dead for at least this long: 30d."),
]
All = Annotated[bool, typer.Option("--all", help="All dead jobs.")]


@app.command("list")
def list_(
    reasons: Reasons = None,
    kinds: Kinds = None,
    since: Since = None,
    until: Until = None,
    older_than: OlderThan = None,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of jobs.")] = 20,
    as_json: AsJson = False,
) -> None:
    """Count dead jobs by kind and reason, and list them, most recently died first.

    Example: thothy dead list --reason lease_lost --since 12h
    """
    from thothy_ai.admin import dead_letters

    selection = _selection(None, reasons, kinds, since, until, older_than)
    with database() as engine:
        groups = dead_letters.groups(engine, selection)
        jobs = dead_letters.list_dead(engine, selection, limit=limit)
    if as_json:
        return print_json({"total": _total(groups), "groups": [asdict(group) for group in groups], "jobs": jobs})
    if not groups:
        return typer.echo("No dead jobs.")
    _print_groups(groups)
    columns = ["id", "kind", "reason", "detail", "attempt", "enqueued_at", "finished_at"]
    heads = ["id", "kind", "reason", "detail", "attempt#", "enqueued", "died"]
    return table("", heads, [[job[column] for column in columns] for job in jobs])


@app.command()
def show(job_id: Annotated[UUID, typer.Argument(metavar="ID")], as_json: AsJson = False) -> None:
    """Show a dead job in full: its request, attempts, rejected outputs and events.

    Example: thothy dead show 019a9e2b-7c44-7d1e-9a53-0c8b3d9a4f10
    """
    from thothy_ai.admin import dead_letters

    with database() as engine:
        job = dead_letters.show(engine, job_id)
    return print_json(job) if as_json else print_job(job)


@app.command()
def redrive(
    job_ids: JobIds = None,
    reasons: Reasons = None,
    kinds: Kinds = None,
    since: Since = None,
    until: Until = None,
    older_than: OlderThan = None,
    every: All = False,
    why: Annotated[str | None, typer.Option(help="Reason, recorded in each job's history with your user name.")] = None,
    deadline: Annotated[
        datetime | None,
        typer.Option(
            parser=times.ahead, metavar="TIME", help="New deadline. Default: the old one unless it has passed."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Queue dead jobs again. Their history is kept; their failure count restarts at zero.

    Example: thothy dead redrive --reason engine_error --since 12h --why "driver updated"
    """
    from thothy_ai.admin import dead_letters

    selection = _explicit_selection(job_ids, reasons, kinds, since, until, older_than, every)
    with database() as engine:
        redriven = dead_letters.redrive(engine, selection, by=_operator(), why=why, deadline=deadline)
    _report("redriven", f"{redriven} jobs queued again.", redriven, job_ids, as_json)


@app.command()
def purge(
    job_ids: JobIds = None,
    reasons: Reasons = None,
    kinds: Kinds = None,
    since: Since = None,
    until: Until = None,
    older_than: OlderThan = None,
    every: All = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Delete dead jobs and their history permanently. Prints counts and asks for confirmation first.

    Example: thothy dead purge --reason invalid_job --older-than 30d --yes
    """
    from thothy_ai.admin import dead_letters

    selection = _explicit_selection(job_ids, reasons, kinds, since, until, older_than, every)
    with database() as engine:
        selection = dead_letters.until_now(engine, selection)
        groups = dead_letters.groups(engine, selection)
        if groups and not yes:
            _print_groups(groups)
            confirm(f"Delete {_total(groups)} jobs and their history?")
        purged = dead_letters.purge(engine, selection)
    _report("purged", f"{purged} jobs deleted.", purged, job_ids, as_json)


def _explicit_selection(
    job_ids: list[UUID] | None,
    reasons: list[str] | None,
    kinds: list[str] | None,
    since: datetime | None,
    until: datetime | None,
    older_than: timedelta | None,
    every: bool,
) -> Selection:
    """The selection of a command that changes jobs: a forgotten filter must not select every job."""
    filtered = any(value is not None for value in (job_ids, reasons, kinds, since, until, older_than))
    if filtered == every:
        usage("pass job ids, --reason, --kind, --since, --until or --older-than, or pass --all alone")
    return _selection(job_ids, reasons, kinds, since, until, older_than)


def _selection(
    job_ids: list[UUID] | None,
    reasons: list[str] | None,
    kinds: list[str] | None,
    since: datetime | None,
    until: datetime | None,
    older_than: timedelta | None,
) -> Selection:
    from thothy_ai.admin.dead_letters import Selection

    if until is not None and older_than is not None:
        usage("--until and --older-than set the same limit: pass only one of them")
    if older_than is not None:
        until = datetime.now(UTC) - older_than
    return Selection(tuple(job_ids or ()), tuple(kinds or ()), tuple(reasons or ()), since, until)


def _report(key: str, line: str, changed: int, job_ids: list[UUID] | None, as_json: bool) -> None:
    """Print the number of changed jobs; exit with 1 if a job named by id was not among them."""
    if as_json:
        print_json({key: changed})
    else:
        typer.echo(line)
    unchanged = len(set(job_ids or ())) - changed
    if unchanged > 0:
        fail(f"{unchanged} of the given jobs are not dead or do not match the other filters")


def _print_groups(groups: list[Group]) -> None:
    heads = ["kind", "reason", "jobs#", "first death", "last death"]
    table("", heads, [[group.kind, group.reason, group.jobs, group.first_died, group.last_died] for group in groups])


def _total(groups: list[Group]) -> int:
    return sum(group.jobs for group in groups)


def _operator() -> str:
    """User and host, recorded in the history."""
    user = f"uid {os.getuid()}"
    with suppress(KeyError, OSError):  # the user of a container may have no name
        user = getuser()
    return f"{user} on {socket.gethostname()}"
