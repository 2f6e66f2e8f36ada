"""`thothy engines`: the engines of the queue, on all machines."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from thothy_ai.admin.durations import spell
from thothy_ai.cli.shell import AsJson, database
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
    if not found:
        return print_text("No engine runs. `thothy up` and `thothy engine` start one.")
    columns: dict[Column, Callable[[EngineStatus], object]] = {
        Column("id"): lambda e: e.id,
        Column("name", text=True): lambda e: e.name,
        Column("machine", text=True, drop=3): lambda e: e.machine,
        Column("model", text=True): lambda e: e.model_name or e.model,
        Column("devices", text=True, drop=4): lambda e: ",".join(e.devices) or e.device,
        Column("state"): _state,
        Column("capacity", number=True, drop=2): lambda e: e.capacity or None,
        Column("heartbeat", number=True, drop=1): lambda e: f"{spell(e.heartbeat_age)} ago",
        Column("running", number=True): lambda e: e.running,
        Column("tok/s", number=True): lambda e: f"{e.tokens_per_second:,.0f}",
    }
    return table("", list(columns), [[show(each) for show in columns.values()] for each in found])


def _state(engine: EngineStatus) -> str:
    remark = engine.end_reason or ("paused" if engine.paused else None)
    return f"{engine.state} ({remark})" if remark else engine.state
