"""Pauses of a part of the queue: the jobs of a kind, of a tenant or for a model, and the draining of an engine."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from shlex import quote
from typing import Final, Literal

from sqlalchemy import Connection, Engine

from thothy_ai.db.statements import statement
from thothy_ai.queue.control import WAKE_DISPATCHER

Scope = Literal["kind", "tenant", "model", "engine"]
SCOPES: Final[tuple[Scope, ...]] = ("kind", "tenant", "model", "engine")


@dataclass(frozen=True, slots=True)
class Pause:
    """What is paused, since when, by whom and why. A paused engine gets no new jobs and finishes its own."""

    scope: Scope
    name: str
    paused_at: datetime
    paused_by: str
    note: str | None

    @property
    def resume_command(self) -> str:
        return f"thothy queue resume --{self.scope} {quote(self.name)}"


def pause_part(engine: Engine, scope: Scope, name: str, *, by: str, note: str | None = None) -> Pause | None:
    """Dispatch none of these jobs any more, or none to this engine. Returns the pause that held before.

    Dispatched and running jobs continue. A paused model also holds jobs that name its aliases, but not jobs without a
    model. A second pause changes only the note, if there is a new one.
    """
    with engine.begin() as connection:
        connection.execute(statement("queue/lock_control"))
        before = _find(connection, scope, name)
        connection.execute(statement("queue/pause_part"), {"scope": scope, "name": name, "by": by, "note": note})
    return before


def resume_part(engine: Engine, scope: Scope, name: str) -> Pause | None:
    """Dispatch them again. Returns the ended pause; None if there was none."""
    with engine.begin() as connection:
        connection.execute(statement("queue/lock_control"))
        before = _find(connection, scope, name)
        connection.execute(statement("queue/resume_part"), {"scope": scope, "name": name})
        connection.execute(WAKE_DISPATCHER)
    return before


def read_pauses(connection: Connection) -> tuple[Pause, ...]:
    """The pauses at this moment, by scope and name."""
    return tuple(Pause(*row) for row in connection.execute(statement("queue/pauses")))


def _find(connection: Connection, scope: Scope, name: str) -> Pause | None:
    return next((each for each in read_pauses(connection) if (each.scope, each.name) == (scope, name)), None)
