"""`UnbilledUsage`: usage of attempts whose own worker could not record it.

An engine reports the usage of requests whose worker vanished to any worker that asks; the worker of a fenced attempt
knows its usage, but may not write an outcome. The rows of such attempts appear when their lease runs out: until then
their usage is kept here. If this process dies, settling divides the lost usage over the session's lost attempts
(`queue/settle_sessions`).
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from uuid import UUID

from thothy_ai.engine.api import AbandonedUsage
from thothy_ai.worker.record.claims import AttemptRef
from thothy_ai.worker.record.finish import Finish
from thothy_ai.worker.record.store import JobStore, UsageRecord

MAX_KEPT = 20_000  # the oldest are dropped first
MAX_BATCH = 1_000
MAX_TRIES = 100  # heartbeats: a lease has run out by then, and a missing row belongs to another database
KEPT_TRIES = 30  # heartbeats after it is recorded: more of an attempt's calls may be reported


@dataclass(slots=True)
class _Kept:
    """An attempt's usage. `recorded` of its `seconds` are in its row; `tries` since that last changed."""

    session_id: UUID
    seconds: float
    recorded: float = 0.0
    tries: int = 0

    @property
    def is_recorded(self) -> bool:
        return self.recorded == self.seconds

    @property
    def is_old(self) -> bool:
        return self.tries >= (KEPT_TRIES if self.is_recorded else MAX_TRIES)


class UnbilledUsage:
    """Owned by the worker's loop. The usage of an attempt's calls adds up."""

    def __init__(self) -> None:
        self._kept: dict[AttemptRef, _Kept] = {}

    def __len__(self) -> int:
        """How many attempts have usage that is not recorded."""
        return sum(not kept.is_recorded for kept in self._kept.values())

    def add(self, attempt_ref: AttemptRef, session_id: UUID | None, seconds: float) -> None:
        """Add this attempt's usage on this engine to its earlier usage there."""
        if session_id is None or seconds <= 0:
            return
        kept = self._kept.setdefault(attempt_ref, _Kept(session_id, 0.0))
        if kept.session_id == session_id:
            kept.seconds += seconds
            kept.tries = 0
        if len(self._kept) > MAX_KEPT:
            del self._kept[next(iter(self._kept))]

    def add_fenced(self, finish: Finish) -> None:
        """Keep the usage of an attempt whose outcome must not be written."""
        self.add(finish.attempt_ref, finish.usage.engine_session_id, finish.usage.engine.compute_seconds)

    def add_abandoned(self, abandoned: AbandonedUsage) -> None:
        """Keep the usage that an engine reports of vanished clients, except for requests not from workers."""
        for request in abandoned.requests:
            with suppress(ValueError):
                job_id, attempt, *_ = request.id.split(".")  # as of `RequestFactory.request`, for a claim's key
                self.add((UUID(job_id), int(attempt)), UUID(abandoned.session_id), request.compute_seconds)

    async def record(self, store: JobStore) -> None:
        """Record the usage of attempts that have a row; the others wait. Raises `DatabaseError`."""
        refs = sorted(ref for ref, kept in self._kept.items() if not kept.is_recorded)
        for start in range(0, len(refs), MAX_BATCH):
            batch = [(ref, self._kept[ref]) for ref in refs[start : start + MAX_BATCH] if ref in self._kept]
            usages = [UsageRecord(*ref, kept.session_id, kept.seconds, kept.recorded) for ref, kept in batch]
            found = await store.record_usage(usages)
            for (ref, _), usage in zip(batch, usages, strict=True):
                if ref in found and ref in self._kept:  # the oldest may have been dropped meanwhile
                    self._kept[ref].recorded = usage.seconds
        for ref, kept in list(self._kept.items()):
            kept.tries += 1
            if kept.is_old:
                del self._kept[ref]
