"""What was measured of models that verify claims, kept where workers find it."""

from __future__ import annotations

from sqlalchemy import Engine

from thothy_ai.db.statements import statement


def record_verifier(engine: Engine, name: str, found: int, false_alarms: int) -> None:
    """Have the findings of this verifier weigh what these doubts say, from the next attempt of any worker on."""
    with engine.begin() as connection:
        values = {"name": name, "found": found, "false_alarms": false_alarms}
        connection.execute(statement("admin/record_verifier"), values)
