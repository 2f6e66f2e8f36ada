"""The service's processes, as their connections to Postgres show them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import Connection, Engine

from thothy_ai.db.statements import statement


@dataclass(frozen=True, slots=True)
class Connected:
    """The processes of one name. `leads`: one of them leads; `led_seconds`: for that long at most.

    `quiet_seconds`: since one of them last used its connection.
    """

    leads: bool
    led_seconds: float
    quiet_seconds: float


def connected(engine: Engine) -> Mapping[str, Connected]:
    """The processes that are connected to this database, by name: `dispatcher`, `worker` and so on."""
    with engine.connect() as connection:
        return read_connected(connection)


def read_connected(connection: Connection) -> Mapping[str, Connected]:
    """The same, read through this connection."""
    rows = connection.execute(statement("admin/processes")).all()
    return {row.application: Connected(row.leads, row.led, row.quiet) for row in rows}
