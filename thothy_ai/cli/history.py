"""`thothy history prune`: delete old months of history."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from thothy_ai.cli import times
from thothy_ai.cli.shell import AsJson, Yes, confirm, database
from thothy_ai.cli.tables import count, print_json, table

if TYPE_CHECKING:
    from thothy_ai.admin.history import Month

app = typer.Typer(no_args_is_help=True, help="Delete old months of finished jobs and their history.")

OlderThan = Annotated[
    timedelta,
    typer.Option(parser=times.duration, metavar="DURATION", help="Minimum time since the end of the month: 90d, 26w."),
]


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


def _print_months(months: list[Month]) -> None:
    if not months:
        return
    heads = ["month", "jobs#", "MB#", "blocking jobs#"]
    table("", heads, [[m.name.replace("_", "-"), m.jobs, f"{m.size / 1e6:.1f}", m.kept or ""] for m in months])
