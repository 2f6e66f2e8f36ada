"""The service's processes, by their connections to Postgres."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import Connection, Engine

from thothy_ai.db.statements import statement


@dataclass(frozen=True, slots=True)
class Connected:
    """The connected processes with one name."""

    leads: bool  # whether one of them is the leader
    led_seconds: float  # the longest time for which it may have been the leader
    quiet_seconds: float  # since any of them last used its connection


def connected(engine: Engine) -> Mapping[str, Connected]:
    """The connected processes by name: `dispatcher`, `worker` and so on."""
    with engine.connect() as connection:
        return read_connected(connection)


def read_connected(connection: Connection) -> Mapping[str, Connected]:
    rows = connection.execute(statement("admin/processes")).all()
    return {row.application: Connected(row.leads, row.led, row.quiet) for row in rows}
