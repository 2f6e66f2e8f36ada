"""`Intake`: from hints to claims. Fresh jobs are claimed many at a time, suspects one by one (`suspects.py`)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

from thothy_ai.crash_points import crash_point
from thothy_ai.errors import DatabaseError
from thothy_ai.queue.hints import Hint
from thothy_ai.worker import metrics
from thothy_ai.worker.batcher import Gather
from thothy_ai.worker.claims import Claim
from thothy_ai.worker.engine_monitor import Residency
from thothy_ai.worker.job_store import Ledger
from thothy_ai.worker.quarantine import TURN_SECONDS
from thothy_ai.worker.retry import insist
from thothy_ai.worker.running_job import Flight

STOP_SECONDS = 10.0  # for a claim that is under way when it is told to stop


class Intake:
    """Owns what is taken from the broker and not claimed yet. `on_done` says that a message is needed no more."""

    def __init__(
        self,
        hints: Gather[Hint],
        ledger: Ledger,
        residency: Residency,
        take_off: Callable[[Claim], Flight],
        on_done: Callable[[Sequence[Hint]], None],
    ) -> None:
        self._hints = hints
        self._ledger = ledger
        self._residency = residency
        self._take_off = take_off
        self._on_done = on_done
        self._waiting: set[Hint] = set()  # taken from the box, not claimed yet
        self._line: set[Hint] = set()  # suspects, whose messages are acknowledged
        self._lined = asyncio.Event()
        self._lock = asyncio.Lock()  # a claim is not to be cut off between its commit and its answer
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, group: asyncio.TaskGroup) -> None:
        """Claim until `stop`, which may follow at once: it finds the tasks."""
        self._tasks = [group.create_task(self._claim_fresh()), group.create_task(self._claim_suspects())]

    async def stop(self) -> None:
        """Claim nothing more; what waits in line here is queued again."""
        with suppress(TimeoutError):
            async with asyncio.timeout(STOP_SECONDS):
                await self._lock.acquire()
        for task in self._tasks:
            task.cancel()
        if self._line:
            with suppress(DatabaseError):  # else the reaper does it
                await self._ledger.give_back(list(self._line))

    def held(self) -> list[Hint]:
        """Everything that waits here."""
        return [*self._waiting, *self._line, *self._hints.waiting()]

    async def _claim_fresh(self) -> None:
        while True:
            hints = await self._hints.take()
            self._waiting.update(hints)
            while hints:
                await self._residency.ready()
                async with self._lock:
                    hints = await self._claim(hints)
                if hints:
                    await asyncio.sleep(TURN_SECONDS)

    async def _claim(self, hints: list[Hint]) -> list[Hint]:
        """Claim what may run; returns what waits for a job that runs alone."""
        answer = await insist("claim", lambda: self._ledger.claim(hints, self._residency.session_id))
        crash_point("after_claim")
        self._waiting.difference_update(set(hints) - set(answer.barred))
        self._drop_stale(set(hints) - answer.live)
        if answer.suspects:
            self._line.update(answer.suspects)
            self._lined.set()
            self._on_done(answer.suspects)
        for claim in answer.claims:
            self._take_off(claim)
        return answer.barred

    async def _claim_suspects(self) -> None:
        while True:
            await self._lined.wait()
            await self._residency.ready()
            async with self._lock:
                flight = await self._claim_suspect()
            if flight is not None:
                await flight.landed.wait()
            else:
                await asyncio.sleep(TURN_SECONDS)

    async def _claim_suspect(self) -> Flight | None:
        line = list(self._line)
        answer = await insist(
            "the claim of a suspect", lambda: self._ledger.claim_suspect(line, self._residency.session_id)
        )
        if answer is None:
            return None
        metrics.STALE_CLAIMS.inc(len(line) - len(answer.live))
        self._line = set(answer.suspects)
        if not self._line:
            self._lined.clear()
        return self._take_off(answer.claims[0]) if answer.claims else None

    def _drop_stale(self, stale: set[Hint]) -> None:
        if stale:
            metrics.STALE_CLAIMS.inc(len(stale))
            self._on_done(list(stale))
