"""`thothy dead list`, `show`, `redrive` and `purge`: jobs that used up their attempts or cannot succeed."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from thothy_ai.admin.durations import spell
from thothy_ai.cli.inputs import times
from thothy_ai.cli.inputs.job_options import (
    MAX_LISTED,
    Deadline,
    JobId,
    JobIds,
    Kinds,
    Reasons,
    Since,
    check_kinds,
    check_reasons,
    find_job,
    find_jobs,
)
from thothy_ai.cli.inputs.parameters import with_fields
from thothy_ai.cli.shell import (
    LONG_SECONDS,
    AsJson,
    Yes,
    check_note,
    confirm,
    database,
    fail,
    load_settings,
    operator,
    stdin_is_a_terminal,
    usage,
)
from thothy_ai.cli.views.job import job_json, print_job
from thothy_ai.cli.views.tables import Column, count, more_exist, print_json, printable, table
from thothy_ai.cli.views.times import local

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from thothy_ai.admin.dead_letters import DeadGroup, Selection

app = typer.Typer(name="dead", no_args_is_help=True, help="Inspect dead jobs, queue them again, or delete them.")

Until = Annotated[
    datetime | None,
    typer.Option(parser=times.ago, metavar="TIME", help="Only jobs that died before: 2h, 3d, 2026-11-21T06:00."),
]
OlderThan = Annotated[
    timedelta | None,
    typer.Option(parser=times.duration, metavar="DURATION", help="Only jobs dead for at least this long: 30d."),
]
All = Annotated[bool, typer.Option("--all", help="All dead jobs.")]


@dataclass(frozen=True, slots=True)
class DeadFilters:
    """The filters of dead jobs, as typed: the options that these commands share."""

    reasons: Reasons = None
    kinds: Kinds = None
    since: Since = None
    until: Until = None
    older_than: OlderThan = None

    def __post_init__(self) -> None:
        if self.until is not None and self.older_than is not None:
            usage("--until and --older-than set the same limit: pass only one of them")
        times.check_order(self.since, self.until)

    def require(self, job_ids: list[str] | None, every: bool) -> None:
        """Refuse to select every job because a filter was forgotten: that takes `--all`."""
        if (bool(job_ids) or self != NO_FILTERS) == every:
            usage("pass job ids, --reason, --kind, --since, --until or --older-than, or pass --all alone")

    def selection(self, engine: Engine, job_ids: list[str] | None = None) -> Selection:
        """Raises `BadParameter` and the errors of `find_jobs`."""
        from thothy_ai.admin.dead_letters import Selection

        check_kinds(engine, self.kinds or ())
        check_reasons(engine, self.reasons or ())
        ids = find_jobs(engine, job_ids or ())
        until = self.until if self.older_than is None else datetime.now(UTC) - self.older_than
        return Selection(tuple(ids), tuple(self.kinds or ()), tuple(self.reasons or ()), self.since, until)

    def nothing(self) -> str:
        """A sentence that nothing matches, with the filters."""
        typed = {
            "--reason": self.reasons,
            "--kind": self.kinds,
            "--since": self.since and [local(self.since)],
            "--until": self.until and [local(self.until)],
            "--older-than": self.older_than and [spell(self.older_than.total_seconds())],
        }
        filters = [printable(f"{option} {value}") for option, values in typed.items() for value in values or ()]
        return f"No dead jobs match {' '.join(filters)}." if filters else "No dead jobs."


NO_FILTERS = DeadFilters()


@app.command("list")
@with_fields
def list_(
    filters: DeadFilters,
    limit: Annotated[int, typer.Option(min=1, max=MAX_LISTED, help="Maximum number of jobs.")] = 20,
    as_json: AsJson = False,
) -> None:
    """Count dead jobs by kind and reason, and list them, most recently died first.

    Example: thothy dead list --reason lease_lost --since 12h
    """
    from thothy_ai.admin import dead_letters

    with database(LONG_SECONDS) as engine:
        selection = filters.selection(engine)
        groups = dead_letters.groups(engine, selection)
        jobs = dead_letters.list_dead(engine, selection, limit=limit)
    if as_json:
        return print_json({"total": _total(groups), "groups": [asdict(group) for group in groups], "jobs": jobs})
    if not groups:
        return typer.echo(filters.nothing())
    _print_groups(groups)
    typer.echo("")
    columns = {
        "id": Column("id"),
        "kind": Column("kind"),
        "reason": Column("reason"),
        "attempt": Column("attempt", number=True, drop=2),
        "enqueued_at": Column("enqueued", drop=3),
        "finished_at": Column("died", drop=1),
        "detail": Column("detail", text=True),
    }
    table("", list(columns.values()), [[job[column] for column in columns] for job in jobs])
    return more_exist(_total(groups), limit)


@app.command()
def show(job_id: JobId, as_json: AsJson = False) -> None:
    """Show a dead job in full: its request, attempts, rejected outputs, events and cost.

    Example: thothy dead show 3d9a4f10
    """
    from thothy_ai.admin import dead_letters

    settings = load_settings()
    with database(LONG_SECONDS) as engine:
        job = dead_letters.show(engine, find_job(engine, job_id))
    return print_json(job_json(job, settings)) if as_json else print_job(job, settings)


@app.command()
@with_fields
def redrive(
    job_ids: JobIds = None,
    filters: DeadFilters = NO_FILTERS,
    every: All = False,
    why: Annotated[str | None, typer.Option(help="Reason, recorded in each job's history with your user name.")] = None,
    deadline: Deadline = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Queue dead jobs again. Their history is kept; their failure count restarts at zero.

    On a terminal, it prints counts and asks for confirmation first, unless the jobs are named by their ids.

    Example: thothy dead redrive --reason engine_error --since 12h --why "driver updated" --yes
    """
    from thothy_ai.admin import dead_letters

    check_note("--why", why)
    filters.require(job_ids, every)
    with database(LONG_SECONDS) as engine:
        selection = dead_letters.until_now(engine, filters.selection(engine, job_ids))
        if not (yes or job_ids or as_json) and stdin_is_a_terminal():
            groups = dead_letters.groups(engine, selection)
            _print_groups(groups)
            confirm(f"Queue {count(_total(groups), 'job')} again?")
        redriven = dead_letters.redrive(engine, selection, by=operator(), why=why, deadline=deadline)
    _report("redriven", "queued again", redriven, len(selection.ids), filters, as_json)


@app.command()
@with_fields
def purge(
    job_ids: JobIds = None,
    filters: DeadFilters = NO_FILTERS,
    every: All = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Delete dead jobs and their history permanently. Prints counts and asks for confirmation first.

    Example: thothy dead purge --reason invalid_job --older-than 30d --yes
    """
    from thothy_ai.admin import dead_letters

    filters.require(job_ids, every)
    with database(LONG_SECONDS) as engine:
        selection = dead_letters.until_now(engine, filters.selection(engine, job_ids))
        groups = dead_letters.groups(engine, selection)
        if groups and not yes:
            _print_groups(groups)
            confirm(f"Delete {count(_total(groups), 'job')}, history included?")
        purged = dead_letters.purge(engine, selection)
    _report("purged", "deleted", purged, len(selection.ids), filters, as_json)


def _report(key: str, done: str, changed: int, given: int, filters: DeadFilters, as_json: bool) -> None:
    """Print the number of changed jobs; exit with 1 if a job named by id was not among them."""
    if as_json:
        print_json({key: changed})
    elif changed or not given:
        typer.echo(f"{count(changed, 'job')} {done}." if changed else filters.nothing())
    unchanged = given - changed
    if unchanged > 0:
        be, do = ("is", "does") if unchanged == 1 else ("are", "do")
        which = "the job" if given == 1 else f"{unchanged} of the {given} given jobs"
        fail(f"{which} {be} not dead or {do} not match the other filters")


def _print_groups(groups: list[DeadGroup]) -> None:
    heads = [
        Column("kind"),
        Column("reason"),
        Column("jobs", number=True),
        Column("first death", drop=1),
        Column("last death"),
    ]
    table("", heads, [[group.kind, group.reason, group.jobs, group.first_died, group.last_died] for group in groups])


def _total(groups: list[DeadGroup]) -> int:
    return sum(group.jobs for group in groups)
