"""`Heartbeat`: tells Postgres regularly that this worker is running: it extends leases, and keeps waiting messages from
counting as lost.

Each heartbeat also records usage that other workers could not record (`record/unbilled.py`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress

from thothy_ai.errors import DatabaseError
from thothy_ai.queue.hints import Hint
from thothy_ai.settings import Settings
from thothy_ai.worker.engine_monitor import EngineMonitor
from thothy_ai.worker.job_in_flight import JobInFlight, StopReason
from thothy_ai.worker.record.claims import AttemptRef
from thothy_ai.worker.record.store import JobStore, LeaseStatus
from thothy_ai.worker.record.unbilled import UnbilledUsage

logger = logging.getLogger(__name__)

HOLD_SECONDS = 60.0  # hold messages without an engine this long, then give their jobs to other workers
STOP_REQUEST_SECONDS = 0.5  # between checks for jobs to stop: sooner than the next heartbeat
RETRY_SECONDS = 0.5  # leases expire while Postgres cannot be reached: extend them as soon as it can


class Heartbeat:
    """One heartbeat for all jobs in flight; stops those that are cancelled, expired or fenced. Owns no state."""

    def __init__(
        self,
        settings: Settings,
        store: JobStore,
        monitor: EngineMonitor,
        unbilled: UnbilledUsage,
        jobs: Collection[JobInFlight],
        waiting_hints: Callable[[], list[Hint]],
    ) -> None:
        self._interval = min(settings.heartbeat_seconds, settings.dispatch_timeout_seconds / 3)
        self._store = store
        self._monitor = monitor
        self._unbilled = unbilled
        self._jobs = jobs
        self._waiting_hints = waiting_hints

    async def run(self) -> None:
        pause = self._interval
        while True:
            await asyncio.sleep(pause)
            pause = self._interval
            try:
                hints = self._waiting_hints()
                if hints and self._monitor.away_seconds < HOLD_SECONDS:
                    await self._store.hold(hints)
                if jobs := list(self._jobs):
                    leases = await self._store.heartbeat([job.claim for job in jobs])
                    for job in jobs:
                        if job.claim.attempt_ref not in leases:
                            job.stop(StopReason.FENCED)
                    self._stop(leases)
                await self._unbilled.record(self._store)
            except DatabaseError as error:
                logger.warning("heartbeat failed: %s", error)
                pause = min(pause, RETRY_SECONDS)

    async def watch_stop_requests(self) -> None:
        """Until cancelled, stop jobs soon after they are cancelled or pass their deadline."""
        while True:
            await asyncio.sleep(STOP_REQUEST_SECONDS)
            if self._jobs:
                with suppress(DatabaseError):  # `run` logs it
                    self._stop(await self._store.stop_requests())

    def _stop(self, leases: Mapping[AttemptRef, LeaseStatus]) -> None:
        for job in self._jobs:
            lease = leases.get(job.claim.attempt_ref)
            if lease is not None and (lease.cancel_requested or lease.expired):
                job.stop(StopReason.CANCELLED if lease.cancel_requested else StopReason.EXPIRED)
