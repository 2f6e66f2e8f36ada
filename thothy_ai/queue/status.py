"""`QueueStatus`: open jobs by state as Postgres has them, and whether an operator has paused the queue."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from sqlalchemy import Connection, Engine

from thothy_ai.db.statements import statement

MAX_UNSERVED = 100_000
MAX_MODELS = 200  # that jobs name


@dataclass(frozen=True, slots=True)
class StateCount:
    """The open jobs of one state. `due_age`: how many seconds the oldest due job has waited; None when none is due."""

    jobs: int = 0
    due_age: float | None = None
    delayed: int = 0
    with_deadline: int = 0
    due_1h: int = 0
    due_6h: int = 0
    due_24h: int = 0
    expired_leases: int = 0


@dataclass(frozen=True, slots=True)
class QueueStatus:
    """The queue at one moment, by open state. `changed_at`, `note`: of the last pause or resume.

    `unserved`: how many jobs wait for each model or alias that no engine serves, counted up to `MAX_UNSERVED`, of the
    first `MAX_MODELS` names that jobs ask for. `unserved_others`: how many wait for later ones, together.
    """

    states: Mapping[str, StateCount]
    paused: bool
    changed_at: datetime | None
    note: str | None
    unserved: Mapping[str, int] = field(default_factory=dict)
    unserved_others: int = 0

    def __getitem__(self, state: str) -> StateCount:
        return self.states.get(state, StateCount())

    @property
    def open(self) -> int:
        """Jobs not finished."""
        return sum(count.jobs for count in self.states.values())

    @property
    def oldest_age(self) -> float:
        """How many seconds the oldest waiting job has been due; 0 when none waits."""
        return max(self["queued"].due_age or 0.0, self["dispatched"].due_age or 0.0, 0.0)


def unserved_jobs(connection: Connection) -> tuple[dict[str, int], int]:
    """How many jobs wait for each model or alias that no engine serves, counted up to `MAX_UNSERVED`.

    Of the names that jobs ask for, the first `MAX_MODELS` of the alphabet are looked at; then, how many jobs wait for
    the later ones, together.
    """
    rows = connection.execute(statement("queue/unserved"), {"limit": MAX_UNSERVED, "names": MAX_MODELS})
    found = {row.model: row.jobs for row in rows}
    others = found.pop(None, 0)
    return found, others


def queue_status(engine: Engine) -> QueueStatus:
    """The queue at this moment."""
    with engine.connect() as connection:
        rows = connection.execute(statement("queue/status")).mappings().all()
        control = connection.execute(statement("queue/control")).one_or_none()
        unserved, others = unserved_jobs(connection)
    states = {row["state"]: StateCount(**{k: v for k, v in row.items() if k != "state"}) for row in rows}
    if control is None:
        return QueueStatus(states, False, None, None, unserved, others)
    return QueueStatus(states, control.paused, control.changed_at, control.note, unserved, others)
