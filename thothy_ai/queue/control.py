"""Operators' controls of the queue: stop dispatching, resume, and dispatch at once."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, Engine, text

from thothy_ai.db.fragments import FRAGMENTS
from thothy_ai.db.statements import statement

WAKE_DISPATCHER = text(f"SELECT {FRAGMENTS['wake_dispatcher']}")


@dataclass(frozen=True, slots=True)
class Control:
    """Whether the queue is paused, since when that holds, and the note of the pause."""

    paused: bool = False
    changed_at: datetime | None = None
    note: str | None = None


def set_paused(engine: Engine, *, paused: bool, note: str | None = None) -> Control:
    """Stop or resume dispatching. Dispatched and running jobs continue. Returns the previous state.

    A queue that is already paused keeps its time, and its note unless there is a new one.
    """
    with engine.begin() as connection:
        before = _control(connection)
        connection.execute(statement("queue/pause"), {"paused": paused, "note": note})
        connection.execute(WAKE_DISPATCHER)
    return before


def read_control(engine: Engine) -> Control:
    """Whether the queue is paused at this moment."""
    with engine.connect() as connection:
        return _control(connection)


def _control(connection: Connection) -> Control:
    row = connection.execute(statement("queue/control")).one_or_none()
    return Control(*row) if row is not None else Control()
