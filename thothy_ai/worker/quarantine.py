"""Isolation of poison jobs: a job that kills engines is found, and other jobs are affected at most once.

    engine deaths   the job runs
    0               beside any others
    1               in quarantine: beside jobs without engine deaths, but never beside another quarantined job
    2               alone: nothing else runs, in any worker
    3               no more: it is dead, `engine_killer`

An engine death affects some hundred jobs. All of them are quarantined, and run one at a time: at its next strike the
killer is the only quarantined job in flight, so no job of the first death sees a second one, and the fresh jobs beside
it see their first. The third time, nothing runs beside it. Thus an innocent job has at most one extra attempt, while no
two killers meet. Bisecting quarantined jobs in cohorts would end sooner, but each innocent job in the killer's cohort
would be affected twice.

The cost: the engine stays full of fresh jobs meanwhile, but at the end of a drain quarantined jobs run one by one. A
job that runs alone empties all engines of this queue first. If another job does not end within a lease, the first is
released for as long (`not_alone`), and the others go first. Both rules hold across workers, by the state of jobs in
Postgres alone: a worker that dies with a quarantined job holds up the others for one lease and no longer.

A worker acknowledges the message of a quarantined job and keeps the job in a list of its own, so that quarantined jobs
take no places in flight. If the worker dies, the reaper queues the job again: a message is only a hint.
"""

from __future__ import annotations

import asyncio
import time

from thothy_ai.worker.claims import Claim
from thothy_ai.worker.job_store import JobStore
from thothy_ai.worker.retry import retry_until_answered

POLL_SECONDS = 0.1  # between checks whether a job may run


async def alone_within(seconds: float, store: JobStore, claim: Claim) -> bool:
    """Wait at most `seconds` until nothing else runs: no other claim succeeds meanwhile. Whether it runs alone now.

    Checked twice: a claim may have been on its way at the first check.
    """
    quiet, end = 0, time.monotonic() + seconds
    while quiet < 2 and time.monotonic() < end:
        await asyncio.sleep(POLL_SECONDS)
        others = await retry_until_answered("the count of other running jobs", lambda: store.others_running(claim))
        quiet = 0 if others else quiet + 1
    return quiet == 2
