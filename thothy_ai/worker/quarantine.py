"""Poison isolation: a job that kills engines is found, and its neighbours pay for it once.

    engine deaths   the job runs
    0               beside any others
    1               a suspect: beside jobs without deaths, but never beside another suspect
    2               alone: nothing else runs, in any worker
    3               it is dead, `engine_killer`

A killer takes some hundred neighbours with it. All are suspects then, and go one at a time: when it kills again it is
the only suspect in flight, so no neighbour of the first death sees a second one, and the fresh jobs beside it see their
first. The third time nothing runs beside it. Hence an innocent job has one extra attempt at most, while no two killers
meet. Bisecting suspects in cohorts ends sooner, but each innocent in the killer's cohort pays twice.

What it costs: the engine stays full of fresh jobs meanwhile, but at the end of a drain suspects run after one another.
A job that runs alone empties all engines of this queue first; should a neighbour not end within a lease, it steps back
for as long (`not_alone`), and lets the others through. Both hold across workers, by the state of jobs in
Postgres alone: a worker that dies with its suspect holds the others up for a lease and no longer.

A worker takes a suspect's message off the broker and keeps the job in a line of its own, so that suspects fill no
places in flight. Should it die, the reaper queues the job again: a message is only a hint.
"""

from __future__ import annotations

import asyncio
import time

from thothy_ai.worker.claims import Claim
from thothy_ai.worker.job_store import Ledger
from thothy_ai.worker.retry import insist

LONE_DEATHS = 2  # so many, and it runs alone; `claim` knows the number too
TURN_SECONDS = 0.1  # between looks at whether it is one's turn


async def alone_within(seconds: float, ledger: Ledger, claim: Claim) -> bool:
    """Wait until nothing else runs, but no longer: no claim passes meanwhile. Whether this one runs alone now.

    Looked at twice: a claim may have been on its way at the first look.
    """
    quiet, end = 0, time.monotonic() + seconds
    while quiet < 2 and time.monotonic() < end:
        await asyncio.sleep(TURN_SECONDS)
        neighbours = await insist("a look at what runs", lambda: ledger.neighbours(claim))
        quiet = 0 if neighbours else quiet + 1
    return quiet == 2
