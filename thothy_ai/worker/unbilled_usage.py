"""`UnbilledUsage`: what attempts used that is not recorded yet, because their own worker could not record it.

An engine reports the usage of requests whose worker vanished to any worker that asks; the worker of a fenced attempt
knows its usage, but may not write an outcome. The rows of such attempts appear when their lease runs out: until then
their usage is kept here. What is lost with this process is divided over the session's lost attempts when the session is
settled (`queue/settle_sessions`).
"""

from __future__ import annotations

from contextlib import suppress
from uuid import UUID

from thothy_ai.engine.api import AbandonedUsage
from thothy_ai.worker.claims import AttemptRef
from thothy_ai.worker.finish import Finish
from thothy_ai.worker.job_store import AttemptUsage, JobStore

MAX_KEPT = 20_000  # the oldest are dropped first
MAX_BATCH = 1_000
MAX_TRIES = 100  # heartbeats: a lease has run out by then, and a missing row belongs to another database


class UnbilledUsage:
    """Owned by the job runner's loop."""

    def __init__(self) -> None:
        self._usages: dict[AttemptRef, AttemptUsage] = {}
        self._tries: dict[AttemptRef, int] = {}

    def __len__(self) -> int:
        return len(self._usages)

    def add(self, attempt_ref: AttemptRef, session_id: UUID | None, seconds: float) -> None:
        """Keep what this attempt used on this engine."""
        if session_id is None or seconds <= 0:
            return
        self._usages[attempt_ref] = AttemptUsage(*attempt_ref, session_id, seconds)
        self._tries[attempt_ref] = 0
        if len(self._usages) > MAX_KEPT:
            self._forget(next(iter(self._usages)))

    def add_fenced(self, finish: Finish) -> None:
        """Keep what an attempt used whose outcome may not be written."""
        self.add(finish.attempt_ref, finish.usage.engine_session_id, finish.usage.engine.compute_seconds)

    def add_abandoned(self, abandoned: AbandonedUsage) -> None:
        """Keep what an engine reports of vanished clients, except requests that were not a worker's."""
        for request in abandoned.requests:
            with suppress(ValueError):
                self.add(_attempt_ref(request.id), UUID(abandoned.session_id), request.compute_seconds)

    async def record(self, store: JobStore) -> None:
        """Record the usage of attempts that have a row; the others wait. Raises `DatabaseError`."""
        refs = sorted(self._usages)
        for start in range(0, len(refs), MAX_BATCH):
            tried = [ref for ref in refs[start : start + MAX_BATCH] if ref in self._usages]
            found = await store.record_usage([self._usages[ref] for ref in tried])
            for ref in tried:
                self._count_try(ref, found=ref in found)

    def _count_try(self, ref: AttemptRef, *, found: bool) -> None:
        if ref in self._usages:
            self._tries[ref] += 1
            if found or self._tries[ref] >= MAX_TRIES:
                self._forget(ref)

    def _forget(self, ref: AttemptRef) -> None:
        del self._usages[ref], self._tries[ref]


def _attempt_ref(request_id: str) -> AttemptRef:
    """The attempt that a request was for (`Claim.key`). Raises ValueError."""
    job_id, _, attempt = request_id.partition(".")
    return UUID(job_id), int(attempt)
