"""`thothy jobs retry`, `change` and `cancel`."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer

from thothy_ai.cli.inputs import times
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
from thothy_ai.cli.inputs.parameters import with_fields
from thothy_ai.cli.shell import LONG_SECONDS, AsJson, Yes, confirm, database, fail, usage
from thothy_ai.cli.views.tables import count, print_json, table
from thothy_ai.db.states import JobState

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from sqlalchemy import Engine


class Retryable(StrEnum):
    DEAD = "dead"
    CANCELLED = "cancelled"
    EXPIRED = "expired"


class Open(StrEnum):
    QUEUED = "queued"
    DISPATCHED = "dispatched"
    RUNNING = "running"


class Waiting(StrEnum):
    QUEUED = "queued"
    DISPATCHED = "dispatched"


@dataclass(frozen=True, slots=True)
class OpenJobFilters:
    """The filters of commands that change open jobs, as typed; the states that each command offers are its own."""

    kind: Kind = None
    key: Key = None
    source: Source = None
    source_file: SourceFile = None
    parent: Parent = None
    batch: Batch = None
    since: Since = None
    older_than: OlderThan = None

    def filters(self, state: Sequence[str] | None) -> Filters:
        """These filters as filters of a list of jobs. Raises `BadParameter`."""
        typed = {field.name: getattr(self, field.name) for field in fields(self)}
        older_than = typed.pop("older_than")
        until = datetime.now(UTC) - older_than if older_than is not None else None
        return Filters([JobState(each) for each in state] if state else None, until=until, **typed)


TOO_LATE = "too late"  # state of a waiting job that could not start before its deadline


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


@with_fields
def cancel(
    job_ids: JobIds = None,
    *,
    state: Annotated[
        list[Open] | None, typer.Option("--state", help="Only jobs in this state. May be repeated.")
    ] = None,
    selection: OpenJobFilters,
    every: Annotated[bool, typer.Option("--all", help="All jobs that have not ended.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show which jobs would be cancelled.")] = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Cancel jobs: those given, or those that match every filter, after a confirmation.

    A running job is stopped by its worker within a heartbeat.

    Example: thothy jobs cancel --state queued --kind translation --older-than 2d
    """
    filters = selection.filters(state)
    _check_selection(job_ids, filters, every)
    from thothy_ai.admin import jobs as admin_jobs

    with database(LONG_SECONDS) as engine:
        if not job_ids:
            chosen = _chosen(engine, filters, list(Open), "Cancel", "cancelled", dry_run, yes, as_json)
            if chosen is None:
                return None
            cancelled = admin_jobs.cancel(engine, chosen)
            if as_json:
                return print_json({"changed": sorted(cancelled), "unchanged": {}})
            return _print_cancelled(cancelled)
        ids = find_jobs(engine, job_ids)
        cancelled = {} if dry_run else admin_jobs.cancel(engine, ids)
        now = admin_jobs.states_of(engine, ids)
    if dry_run:
        return _print_given(ids, now, list(Open), as_json)
    return _report("cancelled", ids, cancelled, now, as_json)


@with_fields
def change(
    job_ids: JobIds = None,
    *,
    priority: Annotated[
        int | None, typer.Option(min=-100, max=100, help="New priority; higher values run first.")
    ] = None,
    deadline: Annotated[
        datetime | None, typer.Option(parser=times.ahead, metavar="TIME", help="New latest time to finish: 2h.")
    ] = None,
    no_deadline: Annotated[bool, typer.Option("--no-deadline", help="Remove the deadline.")] = False,
    not_before: Annotated[
        datetime | None, typer.Option(parser=times.ahead, metavar="TIME", help="New earliest time to start: 30m.")
    ] = None,
    no_not_before: Annotated[bool, typer.Option("--no-not-before", help="Let them start at once.")] = False,
    state: Annotated[
        list[Waiting] | None, typer.Option("--state", help="Only jobs in this state. May be repeated.")
    ] = None,
    selection: OpenJobFilters,
    every: Annotated[bool, typer.Option("--all", help="All jobs that wait.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show which jobs would be changed.")] = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Change when waiting jobs are to run: those given, or those that match every filter, after a confirmation.

    What is not given stays. A job that runs or has ended is not changed.

    Example: thothy jobs change --kind translation --priority 5 --no-deadline
    """
    if (deadline and no_deadline) or (not_before and no_not_before):
        usage("--deadline and --no-deadline are mutually exclusive, as are --not-before and --no-not-before")
    if priority is None and not (deadline or no_deadline or not_before or no_not_before):
        usage("pass what to change: --priority, --deadline, --no-deadline, --not-before or --no-not-before")
    filters = selection.filters(state)
    _check_selection(job_ids, filters, every)
    from thothy_ai.admin import jobs as admin_jobs
    from thothy_ai.queue.changes import KEEP, Change

    wanted = Change(
        KEEP if priority is None else priority,
        None if no_deadline else deadline or KEEP,
        None if no_not_before else not_before or KEEP,
    )
    with database(LONG_SECONDS) as engine:
        if job_ids:
            ids = find_jobs(engine, job_ids)
        else:
            chosen = _chosen(engine, filters, list(Waiting), "Change", "changed", dry_run, yes, as_json)
            if chosen is None:
                return None
            ids = chosen
        waited = {} if dry_run else admin_jobs.change(engine, ids, wanted)
        now = admin_jobs.states_of(engine, ids)
    if dry_run:
        return _print_given(ids, now, list(Waiting), as_json)
    changed = {job_id: now[job_id] for job_id, done in waited.items() if done}
    late = {job_id: TOO_LATE for job_id, done in waited.items() if not done}
    return _report("changed", ids, changed, now | late, as_json)


def _check_selection(job_ids: Sequence[str] | None, filters: Filters, every: bool) -> None:
    if [bool(job_ids), filters != NO_FILTERS, every].count(True) != 1:
        usage("pass job ids, or filters such as --state, --kind and --older-than, or --all alone")


def _chosen(
    engine: Engine,
    filters: Filters,
    states: Sequence[str],
    ask: str,
    done: str,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> list[UUID] | None:
    """The jobs in these states that match, confirmed; None if there is nothing to do, which has been said."""
    from thothy_ai.admin import jobs as admin_jobs

    found = admin_jobs.open_jobs(engine, filters.jobs(engine), since=filters.since, until=filters.until)
    jobs = [job for job in found if job.state in states]
    if not jobs and not as_json:
        typer.echo(filters.nothing("open jobs" if len(states) == len(Open) else "waiting jobs"))
        return None
    if dry_run and as_json:
        print_json({"selected": [job.id for job in jobs]})
        return None
    if not as_json and (dry_run or not yes):
        _print_groups("state", [(job.kind, job.state) for job in jobs])
    if dry_run:
        typer.echo(f"{count(len(jobs), 'job')} would be {done}.")
        return None
    if not yes and jobs:
        confirm(f"{ask} {count(len(jobs), 'job')}?")
    return [job.id for job in jobs]


def _print_given(ids: list[UUID], now: Mapping[UUID, str], states: Sequence[str], as_json: bool) -> None:
    if as_json:
        return print_json({"selected": [job_id for job_id in ids if now.get(job_id) in states]})
    return table("", ["id", "state"], [[job_id, now.get(job_id, "unknown")] for job_id in ids])


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
        whys = {"unknown": "no such job", TOO_LATE: "it could not start before its deadline"}
        why = whys.get(state, f"its state is {state}")
        of = f"{len(unchanged)} of {count(len(ids), 'job')} not {done}; " if len(ids) > 1 else f"not {done}: "
        fail(f"{of}{job_id}: {why}")
