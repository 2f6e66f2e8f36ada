"""`OrphanCosts`: what requests cost whose client left before it can have kept their results.

A client that vanishes leaves seconds behind that nobody has heard of: of requests that are aborted for it, and of
results that were on their way. Whoever asks next is told; a request id is the client's own, so ids have to be unique
across clients, as a worker's are ("job.attempt").
"""

from __future__ import annotations

from thothy_ai.engine.api import Orphan, Orphans

KEPT = 100_000
MAX_BATCH = 10_000  # in one answer: a frame has a limit, and whoever asks has others to hear


class OrphanCosts:
    """One a server, on its loop. The oldest go when there are more than `kept`; `dropped` counts those."""

    def __init__(self, kept: int = KEPT) -> None:
        self._kept = kept
        self._seconds: dict[str, float] = {}
        self.dropped = 0

    def __len__(self) -> int:
        return len(self._seconds)

    def add(self, request_id: str, compute_seconds: float) -> None:
        """Keep what a request cost; nothing is kept of one that cost nothing."""
        if compute_seconds <= 0:
            return
        self._seconds[request_id] = self._seconds.pop(request_id, 0.0) + compute_seconds
        if len(self._seconds) > self._kept:
            del self._seconds[next(iter(self._seconds))]
            self.dropped += 1

    def take(self, session_id: str) -> Orphans:
        """The oldest ones, for good: they are told once. `session_id` is this engine's."""
        ids = list(self._seconds)[:MAX_BATCH]
        return Orphans(session_id, tuple(Orphan(id_, self._seconds.pop(id_)) for id_ in ids))
