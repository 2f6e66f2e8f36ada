"""`RunningJob`: one claimed job, from its claim to its committed outcome."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from enum import StrEnum

from thothy_ai.worker import outcomes
from thothy_ai.worker.claims import Claim
from thothy_ai.worker.finish import AttemptUsage, Finish


class StopReason(StrEnum):
    """Why a running job is stopped before its end."""

    CANCELLED = "cancelled"
    EXPIRED = "expired"
    RELEASED = "released"
    FENCED = "fenced"  # the job belongs to another attempt: no outcome of this one may be written


@dataclass(slots=True, eq=False)
class RunningJob:
    """A claim, the task that works on it, and why it was told to stop, if it was. Owned by the `JobRunner`."""

    claim: Claim
    stop_reason: StopReason | None = None
    task: asyncio.Task[None] | None = None
    finishing: bool = False  # its outcome is known, and is being written
    finished: asyncio.Event = field(default_factory=asyncio.Event)  # its outcome is written

    def stop(self, reason: StopReason) -> None:
        """Tell it to stop, unless its outcome is already being written."""
        if self.stop_reason is None and not self.finishing and self.task is not None:
            self.stop_reason = reason
            self.task.cancel()

    def finish_stopped(self, usage: AttemptUsage) -> Finish:
        """How a job that was stopped ended."""
        if self.stop_reason is StopReason.CANCELLED:
            return outcomes.cancelled(self.claim, usage)
        if self.stop_reason is StopReason.EXPIRED:
            return outcomes.expired(self.claim, usage)
        return outcomes.released(self.claim, "shutdown", usage=usage)
