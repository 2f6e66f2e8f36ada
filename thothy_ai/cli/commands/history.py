"""`thothy history`: the months of history, when the reaper deletes them, and deleting them now."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from thothy_ai.cli.inputs import times
from thothy_ai.cli.shell import LONG_SECONDS, AsJson, Yes, confirm, database
from thothy_ai.cli.views.tables import count, print_json, table

if TYPE_CHECKING:
    from thothy_ai.admin.history import Month

app = typer.Typer(
    name="history", no_args_is_help=True, help="Months of finished jobs and their history, and their deletion."
)

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
    with database(LONG_SECONDS) as engine:
        months = history.months(engine, datetime.now(UTC))
    goes = [month.deleted_from(keep_days) for month in months]
    if as_json:
        rows = [{**asdict(month), "goes": day} for month, day in zip(months, goes, strict=True)]
        return print_json({"keep_history_days": keep_days, "months": rows})
    if not months:
        return typer.echo("There is no history of past months; the current month is never deleted.")
    cells = [[*_cells(month), day] for month, day in zip(months, goes, strict=True)]
    return table("", ["month", "jobs#", "MB#", "open jobs#", "deleted from"], cells)


@app.command()
def prune(older_than: OlderThan, yes: Yes = False, as_json: AsJson = False) -> None:
    """Delete whole months of jobs, requests, attempts, artifacts and events. Asks for confirmation first.

    A month is kept while one of its jobs is open or ended too recently. Hourly usage is always kept.

    Example: thothy history prune --older-than 90d
    """
    from thothy_ai.admin import history

    before = datetime.now(UTC) - older_than
    with database(LONG_SECONDS) as engine:
        months = history.months(engine, before)
        if months and not as_json:
            table("", ["month", "jobs#", "MB#", "blocking jobs#"], list(map(_cells, months)))
        if not yes and any(not month.kept for month in months):
            confirm("Delete these months, except those with blocking jobs?")
        pruned = history.prune(engine, before)
    if as_json:
        return print_json({"pruned": [asdict(month) for month in pruned]})
    return typer.echo(f"{count(len(pruned), 'month')} deleted, {count(sum(month.jobs for month in pruned), 'job')}.")


def _cells(month: Month) -> list[object]:
    return [month.name.replace("_", "-"), month.jobs, f"{month.size / 1e6:.1f}", month.kept or ""]
