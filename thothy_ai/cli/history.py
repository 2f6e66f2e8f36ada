"""`thothy history`: what old months hold, and deleting them."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from thothy_ai.cli import times
from thothy_ai.cli.shell import AsJson, Yes, confirm, database, print_json, table

if TYPE_CHECKING:
    from thothy_ai.admin.history import Month

app = typer.Typer(no_args_is_help=True, help="Delete old months of finished jobs and their history.")

OlderThan = Annotated[
    timedelta,
    typer.Option(parser=times.duration, metavar="DURATION", help="Whole months that were over so long ago: 90d, 26w."),
]


@app.command()
def prune(older_than: OlderThan, yes: Yes = False, as_json: AsJson = False) -> None:
    """Delete whole months: jobs, requests, attempts, artifacts, events. Counts them first, and asks.

    A month that holds a job which is open, or ended later, is kept. Hourly usage stays.

    Example: thothy history prune --older-than 90d
    """
    from thothy_ai.admin import history

    before = datetime.now(UTC) - older_than
    with database() as engine:
        months = history.months(engine, before)
        if not as_json:
            _print_months(months)
        if not yes and any(not month.kept for month in months):
            confirm("Delete these months, but for those that are kept?")
        gone = history.prune(engine, before)
    if as_json:
        return print_json({"pruned": [asdict(month) for month in gone]})
    return typer.echo(f"{len(gone)} months deleted, {sum(month.jobs for month in gone)} jobs.")


def _print_months(months: list[Month]) -> None:
    if not months:
        return
    heads = ["month", "jobs#", "MB#", "stays, because of so many jobs#"]
    table("", heads, [[m.name.replace("_", "-"), m.jobs, f"{m.size / 1e6:.1f}", m.kept or ""] for m in months])
