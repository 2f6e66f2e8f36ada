"""Isolation of poison jobs: a job that kills engines is found, and other jobs are affected at most three times.

    engine deaths   the job runs
    0               beside any others
    1               in quarantine: at most half as many such jobs at once on an engine as it runs sequences
    2               at most the square root of the number of sequences at once on an engine
    3               alone on its engine
    4               no more: it is dead, `engine_killer`

An engine's death is charged to the members of the step that failed, or to all that it had begun with if it died
without a word (`engine/api/inflight_log.py`); what only waited inside it is queued again. Most such deaths are no job's
fault (the kernel's out-of-memory killer, a driver), so that the first one costs little; and a killer's next group is
smaller each time, as in adaptive group testing (Dorfman, 1943; Li, 1962). Fresh jobs fill the engine beside quarantined
ones. Of those that wait, the most charged go first: while some wait that were charged twice, none that was charged
once is claimed, and so none is charged again with them.

What it costs on an engine of n sequences, with other jobs to fill it, t seconds per job, k = root of n:

    one death, no killer    n extra attempts: t / 2 on average, which is lost in any case. The charged jobs run in two
                            groups; a drain that ends with them ends at most t later (in groups of k: n / k times t).
    one killer              4 deaths. Of the n, all have one extra attempt, at most n / 2 two, and at most k - 1 three;
                            up to 3 n / 2 fresh jobs have one. Up to k jobs run alone, about t / 8 each. The others that
                            were charged twice run k at a time: k / 2 times t if nothing else is left to run.
    each further killer     at most 3 deaths more, 2 if it was in the same half; no job ever has a fourth extra attempt.

For n = 1,024 and k = 32: a lone death lengthens a drain by at most t, and by nothing while other jobs last; a killer
keeps the engine from other jobs for 4 t and adds at most 16 t to a drain that has nothing else left. For n = 256 and
k = 16 that is 2 t and 8 t. Thus a job that kills no engine by itself is dead only if an engine happened to die with it
four times, the last time with nothing beside it.

All of it is per engine: the other engines continue, and take their share of the quarantined jobs, whichever worker got
the messages (`worker/claim_quarantined`).

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

from thothy_ai.worker.record.store import JobStore, retry_until_answered

POLL_SECONDS = 0.1  # between checks whether a job may run alone


class ExclusiveSlot:
    """Runs this worker's exclusive jobs alone, one after the other. Owned by the worker's loop."""

    def __init__(self, store: JobStore, lease_seconds: float) -> None:
        self._store = store
        self._lease_seconds = lease_seconds
        self._turn = asyncio.Lock()
        self._crowded_until = float("-inf")  # monotonic: no job waits for the others before that

    @asynccontextmanager
    async def turn(self, session_id: UUID | None) -> AsyncIterator[bool]:
        """Wait for the turn, and at most a lease for the engine's other jobs; returns whether the engine is empty."""
        async with self._turn:
            yield time.monotonic() >= self._crowded_until and await self._emptied(session_id)

    async def _emptied(self, session_id: UUID | None) -> bool:
        """Whether the engine is empty. No other claim succeeds meanwhile; a second check catches one already under
        way.
        """
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
