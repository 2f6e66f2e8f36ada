"""The queue's parts in one hand: two workers, a dispatcher, a reaper, Redis as a list, and a clock.

Every move is the service's own statement or function on a real Postgres. Time passes by moving all of the queue's times
back: to the statements, which compare with `now()`, that is the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4

from tests.support.queue_bench import Queue
from thothy_ai.queue.hints import Hint
from thothy_ai.worker.record.claims import AttemptRef, Claim, ClaimResult, GroupSizes
from thothy_ai.worker.record.finish import Finish
from thothy_ai.worker.record.store import JobStore, LeaseStatus

TIMES = (
    "enqueued_at",
    "not_before",
    "scheduled_for",
    "deadline",
    "dispatched_at",
    "lease_until",
    "started_at",
    "finished_at",
)
PASS = "UPDATE job SET " + ", ".join(f"{name} = {name} - make_interval(secs => :seconds)" for name in TIMES)
TABLES = ("job", "attempt", "artifact", "job_event")  # a job takes its request along
LEASE, DISPATCH_TIMEOUT, LIMIT = 60, 15, 5000
SIZES = GroupSizes(once=3, twice=2, lone=2)
REAPED = {
    "queue/reap_leases": {"retry_base_seconds": 2, "retry_cap_seconds": 8},
    "queue/reap_expired": {"limit": LIMIT},
    "queue/reap_cancelled": {"limit": LIMIT},
}
CHARGED = "outcome IN ('rejected', 'failed') OR reason = 'lease_lost'"  # attempts that were the job's own fault
JOBS = f"""
    SELECT job.*, coalesce(tried, 0) AS tried, coalesce(charged, 0) AS charged, coalesce(accepted, 0) AS accepted
    FROM job
    LEFT JOIN (
        SELECT job_id, count(*) AS tried, count(*) FILTER (WHERE {CHARGED}) AS charged FROM attempt GROUP BY 1
    ) AS tries ON tries.job_id = id
    LEFT JOIN (
        SELECT job_id, count(*) AS accepted FROM artifact WHERE verdict = 'accepted' GROUP BY 1
    ) AS outputs ON outputs.job_id = id
"""


@dataclass
class Worker:
    """What one worker process holds, beside an engine of its own: its claims, and quarantined jobs that wait."""

    name: str
    store: JobStore
    session_id: UUID
    claims: list[Claim] = field(default_factory=list)
    quarantined: list[Hint] = field(default_factory=list)


class World:
    """One queue, empty at first. `close` it."""

    def __init__(self, queue: Queue, loop: asyncio.AbstractEventLoop) -> None:
        self.queue = queue
        self.loop = loop
        for table in TABLES:
            queue.rows(f"DELETE FROM {table}")
        quick = queue.settings.model_copy(update={"lease_seconds": LEASE, "heartbeat_seconds": 10})
        self.workers = [Worker(name, JobStore(quick, name), uuid4()) for name in ("a", "b")]
        self.redis: list[Hint] = []

    def close(self) -> None:
        for worker in self.workers:
            self.loop.run_until_complete(worker.store.close())

    def jobs(self) -> dict[UUID, Any]:
        """Every job, with how many attempts and accepted artifacts are recorded of it."""
        return {row.id: row for row in self.queue.rows(JOBS)}

    def dispatch(self) -> None:
        self.queue.ask("queue/admit_delayed", limit=LIMIT)
        self.redis += self.queue.dispatch(len(self.redis), places=4, urgent_places=2)

    def claim(self, worker: Worker, limit: int) -> ClaimResult:
        """Take messages and claim; what may not run yet is taken again later."""
        hints, self.redis = self.redis[:limit], self.redis[limit:]
        result = self._take(worker, worker.store.claim(hints, worker.session_id))
        worker.quarantined += result.quarantined
        self.redis += result.blocked
        return result

    def claim_quarantined(self, worker: Worker) -> ClaimResult:
        result = self._take(worker, worker.store.claim_quarantined(worker.quarantined, worker.session_id, SIZES))
        worker.quarantined = result.quarantined
        return result

    def _take(self, worker: Worker, asked: Coroutine[Any, Any, ClaimResult | None]) -> ClaimResult:
        result = self.loop.run_until_complete(asked)
        assert result is not None, "no other worker holds the lock"
        worker.claims += result.claims
        return result

    def heartbeat(self, worker: Worker) -> dict[AttemptRef, LeaseStatus]:
        return self.loop.run_until_complete(worker.store.heartbeat(worker.claims))

    def finish(self, worker: Worker, finishes: Sequence[Finish]) -> set[AttemptRef]:
        """Write these outcomes; which were accepted."""
        return set(self.loop.run_until_complete(worker.store.finish(finishes)).states)

    def give_back(self, worker: Worker) -> None:
        self.loop.run_until_complete(worker.store.give_back(worker.quarantined))
        worker.quarantined = []

    def reap(self) -> None:
        for name, parameters in REAPED.items():
            self.queue.ask(name, **parameters)
        rows = self.queue.ask("queue/unclaimed_dispatches", timeout_seconds=DISPATCH_TIMEOUT)
        silent = {Hint(row.id, row.dispatch_no) for row in rows}
        lost = sorted(silent - set(self.redis))
        self.queue.ask(
            "queue/reap_dispatches",
            ids=[hint.job_id for hint in lost],
            dispatch_nos=[hint.dispatch_no for hint in lost],
            timeout_seconds=DISPATCH_TIMEOUT,
        )

    def wait(self, seconds: float) -> None:
        self.queue.rows(PASS, seconds=seconds)
