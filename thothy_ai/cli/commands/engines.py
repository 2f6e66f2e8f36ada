"""`thothy engines`: the engines of the queue, on all machines."""

from __future__ import annotations

from dataclasses import asdict
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from thothy_ai.cli.shell import AsJson, database
from thothy_ai.cli.views import times
from thothy_ai.cli.views.tables import Column, print_json, print_text, table

if TYPE_CHECKING:
    from thothy_ai.admin.engines import EngineStatus

app = typer.Typer()

RECENT = timedelta(days=1)


@app.command()
def engines(
    all_: Annotated[bool, typer.Option("--all", help="Also show those that ended within the last day.")] = False,
    as_json: AsJson = False,
) -> None:
    """List the engines of the queue, on all machines: state, devices, running jobs, output tokens of the last minute.

    An engine is silent if it has sent no heartbeat for 10 s; its session then ends at its last heartbeat.

    Example: thothy engines --all
    """
    from thothy_ai.admin.engines import engines as read_engines

    with database() as engine:
        found = read_engines(engine, RECENT if all_ else timedelta(0))
    if as_json:
        return print_json([asdict(each) for each in found])
    return _print(found) if found else print_text("No engine runs. `thothy up` and `thothy engine` start one.")


def _print(found: list[EngineStatus]) -> None:
    heads: list[Column | str] = [
        "id", Column("name", text=True), Column("machine", text=True, drop=3), Column("model", text=True),
        Column("devices", text=True, drop=4), "state", Column("capacity", number=True, drop=2),
        Column("heartbeat", number=True, drop=1), Column("running", number=True), Column("tok/s", number=True),
    ]  # fmt: skip
    table("", heads, [_row(each) for each in found])


def _row(each: EngineStatus) -> list[object]:
    state = f"{each.state} ({each.end_reason})" if each.end_reason else each.state
    devices = ",".join(each.devices) or each.device
    heartbeat = f"{times.spell(each.heartbeat_age)} ago"
    rate = f"{each.tokens_per_second:,.0f}"
    figures = [each.capacity or None, heartbeat, each.running, rate]
    return [each.id, each.name, each.machine, each.model_name or each.model, devices, state, *figures]
