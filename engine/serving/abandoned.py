"""`AbandonedUsageStore`: usage of requests whose client disconnected before it could record it.

A client that disconnects leaves unrecorded usage behind: that of its aborted requests, and of results on their way. The
next client that asks takes it over. Request ids are the clients' own, so they must be unique across clients, as a
worker's are ("job.attempt").
"""

from __future__ import annotations

from thothy_ai.engine.api import AbandonedRequest, AbandonedStats, AbandonedUsage

MAX_KEPT = 100_000
MAX_BATCH = 10_000  # per reply; frames have a size limit, and building one blocks other clients


class AbandonedUsageStore:
    """One per server, used on its event loop. Above `max_kept` requests the oldest are dropped and counted."""

    def __init__(self, max_kept: int = MAX_KEPT) -> None:
        self._max_kept = max_kept
        self._seconds: dict[str, float] = {}
        self._dropped = 0

    @property
    def stats(self) -> AbandonedStats:
        """How many records can be taken, and how many were dropped."""
        return AbandonedStats(len(self._seconds), self._dropped)

    def add(self, request_id: str, compute_seconds: float) -> None:
        """Keep a request's usage, unless it is zero."""
        if compute_seconds <= 0:
            return
        self._seconds[request_id] = self._seconds.pop(request_id, 0.0) + compute_seconds
        if len(self._seconds) > self._max_kept:
            del self._seconds[next(iter(self._seconds))]
            self._dropped += 1

    def take(self, session_id: str) -> AbandonedUsage:
        """Remove and return the oldest requests, at most `MAX_BATCH`. `session_id` is this engine's."""
        ids = list(self._seconds)[:MAX_BATCH]
        return AbandonedUsage(session_id, tuple(AbandonedRequest(id_, self._seconds.pop(id_)) for id_ in ids))
