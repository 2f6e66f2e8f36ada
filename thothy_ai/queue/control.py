"""What an operator may tell the queue: to stop dispatching, to resume, and to look at once."""

from __future__ import annotations

from sqlalchemy import Engine, text

from thothy_ai.db.statements import statement

WAKE_DISPATCHER = text("SELECT pg_notify('thothy_queued', '')")


def set_paused(engine: Engine, *, paused: bool, note: str | None = None) -> None:
    """Stop or resume dispatching. What is dispatched or running goes on."""
    with engine.begin() as connection:
        connection.execute(statement("operate_pause"), {"paused": paused, "note": note})
        connection.execute(WAKE_DISPATCHER)
