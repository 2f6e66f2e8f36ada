"""`Claimer`: turns hints into claims: fresh jobs as they come, quarantined jobs a group at a time (`quarantine.py`)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

from thothy_ai.crash_points import crash_point
from thothy_ai.errors import DatabaseError
from thothy_ai.queue.hints import Hint
from thothy_ai.worker import metrics
from thothy_ai.worker.batcher import Batcher
from thothy_ai.worker.engine_monitor import EngineMonitor
from thothy_ai.worker.record.claims import Claim, GroupSizes
from thothy_ai.worker.record.store import JobStore, retry_until_answered

POLL_SECONDS = 0.1  # before jobs that are blocked by one that runs alone are claimed again
QUARANTINE_SECONDS = 0.3  # between claims of quarantined jobs that wait here
LOOK_SECONDS = 1.0  # between looks for quarantined jobs whose messages other workers have
STOP_SECONDS = 10.0  # for a running claim to finish at a stop


class Claimer:
    """Owns the hints that came from the broker and are not claimed yet. `on_done` reports messages to acknowledge."""

    def __init__(
        self,
        hints: Batcher[Hint],
        store: JobStore,
        monitor: EngineMonitor,
        start_job: Callable[[Claim], None],
        on_done: Callable[[Sequence[Hint]], None],
        running: Callable[[], set[Hint]],
    ) -> None:
        self._hints = hints
        self._store = store
        self._monitor = monitor
        self._start_job = start_job
        self._on_done = on_done
        self._running = running  # the hints of the jobs that run in this worker
        self._unclaimed: set[Hint] = set()  # taken from the batcher
        self._quarantined: set[Hint] = set()  # their messages are acknowledged
        self._any_quarantined = asyncio.Event()
        self._lock = asyncio.Lock()  # no claim may be cut off between commit and answer
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, group: asyncio.TaskGroup) -> None:
        """Claim until `stop`, which may follow at once: the tasks exist when this returns."""
        self._tasks = [group.create_task(self._claim_fresh()), group.create_task(self._claim_quarantined())]

    async def stop(self) -> None:
        """Claim nothing more, and queue the quarantined jobs that wait here again."""
        with suppress(TimeoutError):
            async with asyncio.timeout(STOP_SECONDS):
                await self._lock.acquire()
        for task in self._tasks:
            task.cancel()
        if self._quarantined:
            with suppress(DatabaseError):  # the reaper will do it
                await self._store.give_back(list(self._quarantined))

    def waiting_hints(self) -> list[Hint]:
        """The received hints that are not claimed yet."""
        return [*self._unclaimed, *self._quarantined, *self._hints.waiting()]

    async def _claim_fresh(self) -> None:
        while True:
            hints = await self._hints.take()
            self._unclaimed.update(hints)
            while hints:
                ready = await self._monitor.ready_unless_stopping()
                async with self._lock:
                    if ready:
                        hints = await self._claim(hints)
                    else:  # the engine accepts nothing new: other engines or its next session run the jobs
                        given = [*hints, *self._quarantined]
                        await retry_until_answered("giving jobs back", partial(self._store.give_back, given))
                        self._unclaimed.difference_update(hints)
                        self._quarantined.clear()
                        self._any_quarantined.clear()
                        self._on_done(hints)
                        hints = []
                if hints:
                    await asyncio.sleep(POLL_SECONDS)

    async def _claim(self, hints: list[Hint]) -> list[Hint]:
        """Claim the jobs that may run; returns those blocked by a job that runs alone."""
        # A quarantined job may run here before its message arrives: it must not be claimed a second time.
        if running := self._running() & set(hints):
            self._unclaimed -= running
            self._on_done(list(running))
            hints = [hint for hint in hints if hint not in running]
        if not hints:
            return []
        result = await retry_until_answered(
            "claim", lambda: self._store.claim(hints, self._monitor.session_id, self._monitor.model_name)
        )
        crash_point("after_claim")
        self._unclaimed.difference_update(set(hints) - set(result.blocked))
        if stale := set(hints) - result.live:
            metrics.STALE_CLAIMS.inc(len(stale))
            self._on_done(list(stale))
        if result.quarantined:
            self._quarantined.update(result.quarantined)
            self._any_quarantined.set()
            self._on_done(result.quarantined)
        metrics.count_claims(result.claims)
        for claim in result.claims:
            self._start_job(claim)
        return result.blocked

    async def _claim_quarantined(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._any_quarantined.wait()
            await self._monitor.ready()
            async with self._lock:
                await self._claim_group()
            await asyncio.sleep(QUARANTINE_SECONDS)

    async def _claim_group(self) -> None:
        """Claim the next group of quarantined jobs, from here and from other workers."""
        hints, info = set(self._quarantined), self._monitor.info
        sizes = GroupSizes.of(info.capacity if info else 0)
        result = await retry_until_answered(
            "the claim of quarantined jobs",
            lambda: self._store.claim_quarantined(
                list(hints), self._monitor.session_id, sizes, self._monitor.model_name
            ),
        )
        if result is None:
            return
        metrics.count_claims(result.claims)
        metrics.STALE_CLAIMS.inc(len(hints - result.live))
        self._quarantined = set(result.quarantined)
        if not self._quarantined:
            self._any_quarantined.clear()
        for claim in result.claims:
            self._start_job(claim)
