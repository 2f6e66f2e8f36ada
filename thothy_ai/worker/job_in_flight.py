"""`JobInFlight`: one claimed job, from its claim to its committed outcome."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from enum import StrEnum

from thothy_ai.worker.record.claims import Claim


class StopReason(StrEnum):
    """Why a job in flight is stopped before its end."""

    CANCELLED = "cancelled"
    EXPIRED = "expired"
    RELEASED = "released"
    FENCED = "fenced"  # the job belongs to another attempt: no outcome of this one may be written


@dataclass(slots=True, eq=False)
class JobInFlight:
    """A claim, its task, and the reason if it is stopped. Owned by the worker's loop."""

    claim: Claim
    stop_reason: StopReason | None = None
    task: asyncio.Task[None] | None = None
    finishing: bool = False  # its outcome is known, and is being written

    def stop(self, reason: StopReason) -> None:
        """Cancel its task, unless its outcome is already being written."""
        if self.stop_reason is None and not self.finishing and self.task is not None:
            self.stop_reason = reason
            self.task.cancel()
