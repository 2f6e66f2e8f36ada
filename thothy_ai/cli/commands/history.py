"""`thothy history`: the months of history, when the reaper deletes them, and deleting them now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from thothy_ai.cli.inputs import times
from thothy_ai.cli.shell import AsJson, Yes, confirm, database
from thothy_ai.cli.views.tables import count, print_json, table

if TYPE_CHECKING:
    from thothy_ai.admin.history import Month

app = typer.Typer(no_args_is_help=True, help="Months of finished jobs and their history, and their deletion.")

OlderThan = Annotated[
    timedelta,
    typer.Option(parser=times.duration, metavar="DURATION", help="Minimum time since the end of the month: 90d, 26w."),
]


@app.command()
def show(as_json: AsJson = False) -> None:
    """Show the past months of history, and when the reaper deletes each.

    That is THOTHY_KEEP_HISTORY_DAYS after its end, or later if one of its jobs is open or ended later. The setting is
    read where this command runs; the reaper reads its own.

    Example: thothy history show
    """
    from thothy_ai.admin import history
    from thothy_ai.settings import Settings

    keep_days = Settings.load().keep_history_days
    with database() as engine:
        months = history.months(engine, datetime.now(UTC))
    rows = [{**asdict(month), "goes": goes(month, keep_days)} for month in months]
    if as_json:
        return print_json({"keep_history_days": keep_days, "months": rows})
    if not months:
        return typer.echo("There is no history of past months; the current month is never deleted.")
    return _print_months(months, "open jobs#", {"deleted from": [row["goes"] for row in rows]})


def goes(month: Month, keep_days: int) -> str:
    """The first day on which the reaper may delete a month, `never` if it keeps all."""
    if not keep_days:
        return "never"
    year, number = map(int, month.name.split("_"))
    end = datetime(year + number // 12, number % 12 + 1, 1, tzinfo=UTC)
    return (end + timedelta(days=keep_days)).date().isoformat()


@app.command()
def prune(older_than: OlderThan, yes: Yes = False, as_json: AsJson = False) -> None:
    """Delete whole months of jobs, requests, attempts, artifacts and events. Asks for confirmation first.

    A month is kept while one of its jobs is open or ended too recently. Hourly usage is always kept.

    Example: thothy history prune --older-than 90d
    """
    from thothy_ai.admin import history

    before = datetime.now(UTC) - older_than
    with database() as engine:
        months = history.months(engine, before)
        if not as_json:
            _print_months(months)
        if not yes and any(not month.kept for month in months):
            confirm("Delete these months, except those with blocking jobs?")
        pruned = history.prune(engine, before)
    if as_json:
        return print_json({"pruned": [asdict(month) for month in pruned]})
    return typer.echo(f"{count(len(pruned), 'month')} deleted, {count(sum(month.jobs for month in pruned), 'job')}.")


def _print_months(
    months: list[Month], kept: str = "blocking jobs#", more: Mapping[str, Sequence[object]] | None = None
) -> None:
    if not months:
        return
    rows = [[m.name.replace("_", "-"), m.jobs, f"{m.size / 1e6:.1f}", m.kept or ""] for m in months]
    columns = more or {}
    cells = [[*row, *extra] for row, *extra in zip(rows, *columns.values(), strict=True)]
    table("", ["month", "jobs#", "MB#", kept, *columns], cells)
