"""`Claim`: a job that this worker has taken to run; `ClaimResult`: the result of claiming hints; `GroupSizes`: how many
quarantined jobs may be claimed (`quarantine.py`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self
from uuid import UUID

from thothy_ai.queue.hints import Hint
from thothy_ai.queue.seeds import attempt_seed

MAX_LONE = 8  # jobs that must run alone, claimed at once: the engine is emptied once for all of them
ASSUMED_CAPACITY = 64  # for engines without a known capacity

AttemptRef = tuple[UUID, int]  # job id and attempt number: names an attempt in the record; the number fences it


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
    max_compute_seconds: float | None  # the job's budget, `used_seconds` of which are spent
    engine_deaths: int
    priority: int
    deadline: datetime | None
    source_key: str
    request: Any
    used_seconds: float = 0.0
    previous: dict[str, Any] | None = None  # the last rejected attempt: reason, detail, artifact, note, drafted
    tries: int = 1  # attempts since the job was enqueued or redriven, this one included
    waited_seconds: float = 0.0  # since the job could run, or run again
    adapter: str = ""  # empty: the model itself
    session_id: UUID | None = None  # of the claim's engine

    def overdraws(self, seconds: float = 0.0) -> bool:
        """Whether the job's budget is spent, including `seconds` of this attempt."""
        return self.max_compute_seconds is not None and self.used_seconds + seconds >= self.max_compute_seconds

    @property
    def drafted(self) -> bool:
        """Whether an earlier attempt left a draft that a person can edit."""
        return self.previous is not None and bool(self.previous["drafted"])

    @property
    def hint(self) -> Hint:
        """The content of the message for this dispatch."""
        return Hint(self.id, self.dispatch_no)

    @property
    def attempt_ref(self) -> AttemptRef:
        """Names this attempt in the record."""
        return self.id, self.attempt

    @property
    def key(self) -> str:
        """Names this attempt to the engine and in logs."""
        return f"{self.id}.{self.attempt}"

    @property
    def seed(self) -> int:
        """The sampling seed: the same for an attempt wherever it runs, different for a retry."""
        return attempt_seed(self.id, self.attempt)


@dataclass(frozen=True, slots=True)
class ClaimResult:
    """The claimed jobs, and those that have to wait: `quarantined` jobs, and jobs `blocked` by one that runs alone."""

    claims: list[Claim]
    quarantined: list[Hint]
    blocked: list[Hint]

    @classmethod
    def of(cls, rows: Sequence[Any], session_id: UUID | None = None) -> ClaimResult:
        """The result in a claiming statement's rows for this engine: a row without attempt number was not claimed."""
        waiting = [row for row in rows if row.attempt is None]
        return cls(
            [Claim(*(*row, session_id)) for row in rows if row.attempt is not None],
            [Hint(row.id, row.dispatch_no) for row in waiting if row.engine_deaths],
            [Hint(row.id, row.dispatch_no) for row in waiting if not row.engine_deaths],
        )

    @property
    def live(self) -> set[Hint]:
        """The hints that are not stale."""
        return {*(claim.hint for claim in self.claims), *self.quarantined, *self.blocked}


@dataclass(frozen=True, slots=True)
class GroupSizes:
    """The most jobs charged with one engine death that run at once on an engine, and the most charged with two.

    Of the jobs that must run alone, `lone` are claimed together; they run one after the other.
    """

    once: int
    twice: int
    lone: int = MAX_LONE

    @classmethod
    def of(cls, capacity: int) -> Self:
        """Group sizes for an engine of `capacity` sequences (0: not known): its half and its square root."""
        sequences = capacity or ASSUMED_CAPACITY
        return cls(max(1, sequences // 2), math.isqrt(sequences))
