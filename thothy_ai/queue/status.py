"""`QueueStatus`: open jobs by state in Postgres, and operators' pauses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from sqlalchemy import Connection, Engine

from thothy_ai.db.statements import statement
from thothy_ai.queue.pauses import Pause, read_pauses

MAX_UNSERVED = 100_000
MAX_MODELS = 200  # names in jobs' requests


@dataclass(frozen=True, slots=True)
class StateCount:
    """The open jobs of one state. `due_age`: how many seconds the oldest due job has waited; None when none is due.

    `held`: due jobs that wait because a part of the queue is paused, which `due_age` leaves out.
    """

    jobs: int = 0
    due_age: float | None = None
    delayed: int = 0
    with_deadline: int = 0
    due_1h: int = 0
    due_6h: int = 0
    due_24h: int = 0
    expired_leases: int = 0
    held: int = 0


@dataclass(frozen=True, slots=True)
class Unserved:
    """Jobs that wait for a model that no engine serves.

    `jobs`: how many wait for each model or alias, counted up to `MAX_UNSERVED`, of the first `MAX_MODELS` names that
    jobs ask for, in the order of the alphabet. `others`: how many wait for later ones, together. `aliases`: the models
    of the names that are aliases.
    """

    jobs: Mapping[str, int] = field(default_factory=dict)
    others: int = 0
    aliases: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class QueueStatus:
    """The queue at one moment, by open state. `changed_at`, `note`: of the last pause or resume.

    `unserved`, `unserved_others`, `unserved_aliases`: see `Unserved`. `pauses`: of parts of the queue.
    """

    states: Mapping[str, StateCount]
    paused: bool
    changed_at: datetime | None
    note: str | None
    unserved: Mapping[str, int] = field(default_factory=dict)
    unserved_others: int = 0
    unserved_aliases: Mapping[str, str] = field(default_factory=dict)
    pauses: tuple[Pause, ...] = ()

    def __getitem__(self, state: str) -> StateCount:
        return self.states.get(state, StateCount())

    @property
    def open(self) -> int:
        return sum(count.jobs for count in self.states.values())

    @property
    def oldest_age(self) -> float:
        """How many seconds the oldest waiting job has been due; 0 when none waits."""
        return max(self["queued"].due_age or 0.0, self["dispatched"].due_age or 0.0, 0.0)


def unserved_jobs(connection: Connection) -> Unserved:
    """The jobs that wait for a model that no engine serves, at this moment."""
    rows = connection.execute(statement("queue/unserved"), {"limit": MAX_UNSERVED, "names": MAX_MODELS}).all()
    found = {row.model: row.jobs for row in rows}
    others = found.pop(None, 0)
    return Unserved(found, others, {row.model: row.alias_of for row in rows if row.alias_of})


def queue_status(engine: Engine) -> QueueStatus:
    """The queue at this moment."""
    with engine.connect() as connection:
        rows = connection.execute(statement("queue/status")).mappings().all()
        control = connection.execute(statement("queue/control")).one_or_none()
        unserved = unserved_jobs(connection)
        pauses = read_pauses(connection)
    states = {row["state"]: StateCount(**{k: v for k, v in row.items() if k != "state"}) for row in rows}
    waiting = (unserved.jobs, unserved.others, unserved.aliases, pauses)
    if control is None:
        return QueueStatus(states, False, None, None, *waiting)
    return QueueStatus(states, control.paused, control.changed_at, control.note, *waiting)
