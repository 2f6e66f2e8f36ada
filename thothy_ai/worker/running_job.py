"""`Flight`: one claimed job on its way, from claim to committed outcome."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from enum import StrEnum

from thothy_ai.worker import outcomes
from thothy_ai.worker.claims import Claim
from thothy_ai.worker.outcomes import Finish, Usage


class Fate(StrEnum):
    """Why a flight is stopped before its end."""

    CANCELLED = "cancelled"
    EXPIRED = "expired"
    RELEASED = "released"
    FENCED = "fenced"  # the job belongs to another attempt by now: nothing of this one may be kept


@dataclass(slots=True, eq=False)
class Flight:
    """A claim, the task that works on it, and its fate once it is told to stop. Owned by the `Foreman`."""

    claim: Claim
    fate: Fate | None = None
    task: asyncio.Task[None] | None = None
    landing: bool = False  # its outcome is known, and being written
    landed: asyncio.Event = field(default_factory=asyncio.Event)  # its outcome is written

    def stop(self, fate: Fate) -> None:
        """Tell it to stop, unless its outcome is already being written."""
        if self.fate is None and not self.landing and self.task is not None:
            self.fate = fate
            self.task.cancel()

    def stopped(self, usage: Usage) -> Finish:
        """How a stopped flight ended."""
        if self.fate is Fate.CANCELLED:
            return outcomes.cancelled(self.claim, usage)
        if self.fate is Fate.EXPIRED:
            return outcomes.expired(self.claim, usage)
        return outcomes.released(self.claim, "shutdown", usage=usage)
