"""Watches one job: its state, why it waits, and the attempts that ended since the last look."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Engine, Row

from thothy_ai.admin.processes import read_connected
from thothy_ai.db.statements import statement
from thothy_ai.db.states import JobState
from thothy_ai.errors import UnknownJobError
from thothy_ai.jobs.text.strings import counted
from thothy_ai.queue.pauses import Pause

MAX_AHEAD = 1_000  # jobs that are read of a longer queue


@dataclass(frozen=True, slots=True)
class EndedAttempt:
    attempt: int
    outcome: str
    reason: str | None
    detail: str | None
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    compute_seconds: float
    started_at: datetime
    finished_at: datetime


@dataclass(frozen=True, slots=True)
class JobWait:
    """What a job waits for."""

    paused: bool
    note: str | None
    not_before: datetime | None  # set while it is in the future
    ahead: int | None  # jobs to be dispatched before this one; None if more than `MAX_AHEAD`, or if it is not due
    dispatcher: bool  # whether a dispatcher is connected
    worker: bool
    unserved_model: str | None = None  # the model or alias of the job, if no engine serves it
    alias_of: str | None = None  # the model that the alias stands for
    held: Pause | None = None  # the pause of a part of the queue that holds the job back


@dataclass(frozen=True, slots=True)
class JobSnapshot:
    """A job at one moment by the database's clock. `ended`: attempts that ended since the last snapshot."""

    id: UUID
    kind: str
    state: JobState
    attempt: int
    failures: int
    max_attempts: int
    cancel_requested: bool
    worker: str | None
    reason: str | None
    detail: str | None
    enqueued_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    at: datetime
    ended: tuple[EndedAttempt, ...]
    waiting: JobWait | None  # set while it is queued or dispatched


class JobWatch:
    """Looks at one job repeatedly."""

    def __init__(self, engine: Engine, job_id: UUID) -> None:
        self._engine = engine
        self._id = job_id
        self._seen = 0  # the last attempt reported as ended

    def look(self) -> JobSnapshot:
        """The current state of the job. Raises `UnknownJobError`."""
        with self._engine.connect() as connection:
            row = connection.execute(statement("admin/watch_job"), {"id": self._id}).one_or_none()
            if row is None:
                raise UnknownJobError(self._id)
            after = {"id": self._id, "after": self._seen}
            ended = tuple(EndedAttempt(*each) for each in connection.execute(statement("admin/ended_attempts"), after))
            waiting = _waiting(connection, row) if row.state in {JobState.QUEUED, JobState.DISPATCHED} else None
        if ended:
            self._seen = ended[-1].attempt
        names = (name for name in JobSnapshot.__dataclass_fields__ if name not in {"state", "ended", "waiting"})
        values: dict[str, Any] = {name: getattr(row, name) for name in names}
        return JobSnapshot(**values, state=JobState(row.state), ended=ended, waiting=waiting)

    def artifact(self) -> dict[str, Any] | None:
        """The body of the accepted artifact; None if there is none."""
        with self._engine.connect() as connection:
            wanted = {"ids": [self._id], "tenant": None}
            row = connection.execute(statement("producer/artifacts"), wanted).one_or_none()
        return row.body if row is not None else None


def why_it_waits(job: JobSnapshot, waiting: JobWait, clock: Callable[[datetime], str]) -> tuple[str, str]:
    """Why a job waits: the sort of reason, and a sentence, with times formatted by `clock`."""
    if waiting.not_before is not None:
        when = clock(waiting.not_before)
        return ("retry", f"tried again at {when}") if job.attempt else ("delayed", f"not before {when}")
    if job.state is JobState.DISPATCHED:
        return ("worker", "waiting for a worker") if waiting.worker else ("no worker", "no worker is connected")
    if pause := _pause(waiting):
        return "paused", pause
    if not waiting.dispatcher:
        return "no dispatcher", "no dispatcher is connected"
    return _place(waiting)


def _place(waiting: JobWait) -> tuple[str, str]:
    """Why a job that is due for dispatch still waits."""
    if model := waiting.unserved_model:
        named = f"{model}, an alias of {waiting.alias_of}" if waiting.alias_of else model
        return "no engine", f"no engine serves {named} (`thothy models alias {model} MODEL` lets another run it)"
    if waiting.ahead is None:
        return "behind", f"more than {counted(MAX_AHEAD, 'job')} before it"
    return "behind", f"{counted(waiting.ahead, 'job')} before it" if waiting.ahead else "next"


def _pause(waiting: JobWait) -> str | None:
    """The pause that holds a job back, if any. A pause of the whole queue comes before that of a part."""
    if waiting.paused:
        what, note, command = "the queue", waiting.note, "thothy queue resume"
    elif (held := waiting.held) is not None:
        what, note, command = f"{held.scope} {held.name}", held.note, held.resume_command
    else:
        return None
    return f"{what} is paused{f': {note}' if note else ''} (`{command}` resumes it)"


def _waiting(connection: Connection, row: Row[Any]) -> JobWait:
    processes = read_connected(connection)
    due = row.state == JobState.QUEUED and not row.later
    limit = {"id": row.id, "limit": MAX_AHEAD}
    pause = (row.held_scope, row.held_name, row.held_at, row.held_by, row.held_note)
    return JobWait(
        paused=bool(row.paused),
        note=row.note,
        not_before=row.not_before if row.later else None,
        ahead=connection.scalar(statement("admin/queue_position"), limit) if due else None,
        dispatcher="dispatcher" in processes,
        worker="worker" in processes,
        unserved_model=row.unserved_model,
        alias_of=row.alias_of,
        held=Pause(*pause) if row.held_scope else None,
    )
