"""`thothy jobs retry` and `cancel`."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer

from thothy_ai.cli.inputs.job_options import (
    NO_FILTERS,
    Batch,
    Deadline,
    Filters,
    JobIds,
    Key,
    Kind,
    OlderThan,
    Parent,
    Reason,
    Since,
    Source,
    SourceFile,
    check_kinds,
    check_reasons,
    find_jobs,
)
from thothy_ai.cli.shell import LONG_SECONDS, AsJson, Yes, confirm, database, fail, usage
from thothy_ai.cli.views.tables import count, print_json, table
from thothy_ai.db.states import JobState

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sqlalchemy import Engine


class Retryable(StrEnum):
    DEAD = "dead"
    CANCELLED = "cancelled"
    EXPIRED = "expired"


class Open(StrEnum):
    QUEUED = "queued"
    DISPATCHED = "dispatched"
    RUNNING = "running"


def retry(
    job_ids: JobIds = None,
    state: Annotated[Retryable | None, typer.Option(help="All jobs in this state, instead of job ids.")] = None,
    kind: Kind = None,
    reason: Reason = None,
    deadline: Deadline = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Queue dead, cancelled or expired jobs again: those given, or all in a state, after a confirmation.

    Their history is kept; their failure count restarts at zero.

    Example: thothy jobs retry --state dead --reason lease_lost
    """
    from thothy_ai.admin import jobs as admin_jobs

    if bool(job_ids) == bool(state):
        usage("pass either job ids or --state (optionally with --kind and --reason)")
    if job_ids and (kind or reason):
        usage("--kind and --reason filter --state; they cannot be combined with job ids")
    with database(LONG_SECONDS) as engine:
        check_kinds(engine, [kind] if kind else [])
        check_reasons(engine, [reason] if reason else [])
        if state:
            jobs = admin_jobs.ended_jobs(engine, state.value, kind=kind, reason=reason)
            if jobs and not yes:
                if not as_json:
                    _print_groups("reason", [(job.kind, job.reason or "-") for job in jobs])
                confirm(f"Queue {count(len(jobs), 'job')} again?")
            ids = [job.id for job in jobs]
        else:
            ids = find_jobs(engine, job_ids or ())
        redriven = admin_jobs.redrive(engine, ids, deadline=deadline)
        states = admin_jobs.states_of(engine, ids)
    if not ids and not as_json:
        return typer.echo(f"No {state} jobs match.")
    return _report("queued again", ids, dict.fromkeys(redriven, ""), states, as_json)


def cancel(
    job_ids: JobIds = None,
    state: Annotated[
        list[Open] | None, typer.Option("--state", help="Only jobs in this state. May be repeated.")
    ] = None,
    kind: Kind = None,
    key: Key = None,
    source: Source = None,
    source_file: SourceFile = None,
    parent: Parent = None,
    batch: Batch = None,
    since: Since = None,
    older_than: OlderThan = None,
    every: Annotated[bool, typer.Option("--all", help="All jobs that have not ended.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show which jobs would be cancelled.")] = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Cancel jobs: those given, or those that match every filter, after a confirmation.

    A running job is stopped by its worker within a heartbeat.

    Example: thothy jobs cancel --state queued --kind translation --older-than 2d
    """
    states = [JobState(each) for each in state] if state else None
    until = datetime.now(UTC) - older_than if older_than is not None else None
    filters = Filters(states, kind, key, source, source_file, parent, batch, since=since, until=until)
    filtered = filters != NO_FILTERS
    if [bool(job_ids), filtered, every].count(True) != 1:
        usage("pass job ids, or filters such as --state, --kind and --older-than, or --all alone")
    from thothy_ai.admin import jobs as admin_jobs

    with database(LONG_SECONDS) as engine:
        if not job_ids:
            return _cancel_selected(engine, filters, dry_run, yes, as_json)
        ids = find_jobs(engine, job_ids)
        cancelled = {} if dry_run else admin_jobs.cancel(engine, ids)
        now = admin_jobs.states_of(engine, ids)
    if not dry_run:
        return _report("cancelled", ids, cancelled, now, as_json)
    if as_json:
        return print_json({"selected": [job_id for job_id in ids if now.get(job_id) in list(Open)]})
    return table("", ["id", "state"], [[job_id, now.get(job_id, "unknown")] for job_id in ids])


def _cancel_selected(engine: Engine, filters: Filters, dry_run: bool, yes: bool, as_json: bool) -> None:
    from thothy_ai.admin import jobs as admin_jobs

    jobs = admin_jobs.open_jobs(engine, filters.jobs(engine), since=filters.since, until=filters.until)
    if not jobs and not as_json:
        return typer.echo(filters.nothing("open jobs"))
    if dry_run and as_json:
        return print_json({"selected": [job.id for job in jobs]})
    if not as_json and (dry_run or not yes):
        _print_groups("state", [(job.kind, job.state) for job in jobs])
    if dry_run:
        return typer.echo(f"{count(len(jobs), 'job')} would be cancelled.")
    if not yes and jobs:
        confirm(f"Cancel {count(len(jobs), 'job')}?")
    cancelled = admin_jobs.cancel(engine, [job.id for job in jobs])
    if as_json:
        return print_json({"changed": sorted(cancelled), "unchanged": {}})
    return _print_cancelled(cancelled)


def _print_groups(by: str, jobs: Iterable[tuple[str, str]]) -> None:
    table("", ["kind", by, "jobs#"], [[*group, number] for group, number in sorted(Counter(jobs).items())])


def _print_cancelled(states: Mapping[UUID, str]) -> None:
    running = sum(state == JobState.RUNNING for state in states.values())
    typer.echo(f"{count(len(states), 'job')} cancelled.")
    if running:
        be, stop = ("is", "its worker stops it") if running == 1 else ("are", "their workers stop them")
        typer.echo(f"{running} of them {be} running; {stop} within a heartbeat.")


def _report(done: str, ids: list[UUID], changed: Mapping[UUID, str], states: Mapping[UUID, str], as_json: bool) -> None:
    """Print the number of changed jobs; exit with 1 if a selected job was not changed."""
    unchanged = {job_id: states.get(job_id, "unknown") for job_id in ids if job_id not in changed}
    if as_json:
        print_json({"changed": sorted(changed), "unchanged": {str(job): state for job, state in unchanged.items()}})
    elif changed and done == "cancelled":
        _print_cancelled(changed)
    elif changed:
        typer.echo(f"{count(len(changed), 'job')} {done}.")
    if unchanged:
        job_id, state = next(iter(unchanged.items()))
        why = "no such job" if state == "unknown" else f"its state is {state}"
        of = f"{len(unchanged)} of {count(len(ids), 'job')} not {done}; " if len(ids) > 1 else f"not {done}: "
        fail(f"{of}{job_id}: {why}")
