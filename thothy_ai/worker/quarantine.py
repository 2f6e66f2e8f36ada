"""Isolation of poison jobs: a job that kills engines is found, and other jobs are affected at most twice.

    engine deaths   the job runs
    0               beside any others
    1               in quarantine: beside jobs without engine deaths, and at most `MAX_SUSPECTS` on each engine
    2               alone on its engine
    3               no more: it is dead, `engine_killer`

An engine's death is charged to the members of the step that failed, or to all that it had begun with if it died
without a word (`engine/admissions.py`); what only waited inside it is queued again. Some hundred jobs may be charged.
They run in small groups, a new one as soon as another has ended, while fresh jobs fill the engine. At its second strike
the killer has at most `MAX_SUSPECTS - 1` quarantined jobs beside it, which then run alone as it does; the fresh jobs
beside it see their first. The third time nothing runs beside it. Thus an innocent job has at most two extra attempts, a
killer is dead at its third, and what dies with a killer the third time is the killer alone.

All of it is per engine: the other engines go on, and take their share of the quarantined jobs, whoever got the messages
(`worker/claim_quarantined`). One at a time, n jobs of t seconds took n t. On E engines, k at once, they take
n t / (k E); and the at most k that a second strike charges again take about t / 8 each, alone on an engine that is
otherwise empty. k = 32 is near the root of an engine's rows, where both are small.

A job that runs alone empties its engine first. If another job there does not end within a lease, all that wait to run
alone are released for as long (`not_alone`), and the others go first. The rules hold across workers by the state of
jobs in Postgres alone: a worker that dies with quarantined jobs holds up the others for one lease and no longer.

A worker acknowledges the message of a quarantined job and keeps the job in a list of its own, so that quarantined jobs
take no places in flight. If the worker dies, the reaper queues the job again: a message is only a hint.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import UUID

from thothy_ai.worker.job_store import JobStore
from thothy_ai.worker.retry import retry_until_answered

POLL_SECONDS = 0.1  # between checks whether a job may run
CLAIM_SECONDS = 0.3  # between claims of quarantined jobs that wait here
LOOK_SECONDS = 1.0  # between looks for quarantined jobs whose messages other workers have


class Solitude:
    """Lets one job of this worker after the other run alone. Owned by the job runner's loop."""

    def __init__(self, store: JobStore, lease_seconds: float) -> None:
        self._store = store
        self._lease_seconds = lease_seconds
        self._turn = asyncio.Lock()
        self._crowded_until = float("-inf")  # monotonic: until then, no job waits for the others to end

    @asynccontextmanager
    async def turn(self, session_id: UUID | None) -> AsyncIterator[bool]:
        """Wait for the turn, and at most a lease for the engine's other jobs; whether nothing else runs there now."""
        async with self._turn:
            yield time.monotonic() >= self._crowded_until and await self._emptied(session_id)

    async def _emptied(self, session_id: UUID | None) -> bool:
        """No other claim succeeds meanwhile. Checked twice: one may have been on its way at the first check."""
        quiet, end = 0, time.monotonic() + self._lease_seconds
        while quiet < 2 and time.monotonic() < end:
            await asyncio.sleep(POLL_SECONDS)
            others = await retry_until_answered(
                "the count of other running jobs", lambda: self._store.others_running(session_id)
            )
            quiet = 0 if others else quiet + 1
        if quiet < 2:
            self._crowded_until = time.monotonic() + self._lease_seconds
        return quiet == 2
