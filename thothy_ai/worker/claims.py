"""`Claim`: a job this worker has taken to run; `Answer`: what the statement `claim` says of the jobs it was given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import Any
from uuid import UUID

from thothy_ai.queue.hints import Hint


@dataclass(frozen=True, slots=True)
class Claim:
    """One attempt at a job. `attempt` is its fencing token; `request` is JSON that may no longer parse."""

    id: UUID
    dispatch_no: int
    attempt: int
    tenant: str
    kind: str
    failures: int
    max_attempts: int
    engine_deaths: int
    priority: int
    deadline: datetime | None
    source_key: str
    request: Any

    @property
    def hint(self) -> Hint:
        """The message that brought it."""
        return Hint(self.id, self.dispatch_no)

    @property
    def token(self) -> tuple[UUID, int]:
        """Names this attempt in the record; the number fences it."""
        return self.id, self.attempt

    @property
    def key(self) -> str:
        """Names this attempt, to the engine and in logs."""
        return f"{self.id}.{self.attempt}"

    @property
    def seed(self) -> int:
        """Of its draws, 63 bits: the same for the same attempt wherever it runs, another one for a retry."""
        return int.from_bytes(sha256(self.key.encode()).digest()[:8]) >> 1


@dataclass(frozen=True, slots=True)
class Answer:
    """What was claimed, and what waits: suspects for their turn, `barred` for the end of a job that runs alone."""

    claims: list[Claim]
    suspects: list[Hint]
    barred: list[Hint]

    @classmethod
    def of(cls, rows: Sequence[Any]) -> Answer:
        """Sorts the statement's rows: those without an attempt wait."""
        waiting = [row for row in rows if row.attempt is None]
        return cls(
            [Claim(*row) for row in rows if row.attempt is not None],
            [Hint(row.id, row.dispatch_no) for row in waiting if row.engine_deaths],
            [Hint(row.id, row.dispatch_no) for row in waiting if not row.engine_deaths],
        )

    @property
    def live(self) -> set[Hint]:
        """The messages that are not stale."""
        return {*(claim.hint for claim in self.claims), *self.suspects, *self.barred}
