"""The service's processes, as their connections to Postgres show them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import Connection, Engine

from thothy_ai.db.statements import statement


@dataclass(frozen=True, slots=True)
class Connected:
    """The connected processes of one name."""

    leads: bool  # whether one of them is the leader
    led_seconds: float  # for at most this long
    quiet_seconds: float  # since one of them last used its connection


def connected(engine: Engine) -> Mapping[str, Connected]:
    """The connected processes by name: `dispatcher`, `worker` and so on."""
    with engine.connect() as connection:
        return read_connected(connection)


def read_connected(connection: Connection) -> Mapping[str, Connected]:
    rows = connection.execute(statement("admin/processes")).all()
    return {row.application: Connected(row.leads, row.led, row.quiet) for row in rows}
