"""What operators tell the queue: to stop dispatching, to resume, and to dispatch at once."""

from __future__ import annotations

from sqlalchemy import Engine, text

from thothy_ai.db.fragments import FRAGMENTS
from thothy_ai.db.statements import statement

WAKE_DISPATCHER = text(f"SELECT {FRAGMENTS['wake_dispatcher']}")


def set_paused(engine: Engine, *, paused: bool, note: str | None = None) -> None:
    """Stop or resume dispatching. Jobs that are dispatched or running go on."""
    with engine.begin() as connection:
        connection.execute(statement("queue/pause"), {"paused": paused, "note": note})
        connection.execute(WAKE_DISPATCHER)
