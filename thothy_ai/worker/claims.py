"""`Claim`: a job this worker has taken to run, as the statement `claim` returns it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import Any
from uuid import UUID

from thothy_ai.worker.hints import Hint


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
    def key(self) -> str:
        """Names this attempt, to the engine and in logs."""
        return f"{self.id}.{self.attempt}"

    @property
    def seed(self) -> int:
        """Of its draws, 63 bits: the same for the same attempt wherever it runs, another one for a retry."""
        return int.from_bytes(sha256(self.key.encode()).digest()[:8]) >> 1
