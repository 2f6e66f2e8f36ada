"""The queue's parts in one hand: two workers, a dispatcher, a reaper, Redis as a list, and a clock.

Every move is the service's own statement or function on a real Postgres. Time passes by moving all of the queue's times
back: to the statements, which compare with `now()`, that is the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from tests.support.queue_bench import Queue
from thothy_ai.queue.hints import Hint
from thothy_ai.worker.claims import Answer, Claim
from thothy_ai.worker.job_store import Beat, Ledger
from thothy_ai.worker.outcomes import Finish

TIMES = ("enqueued_at", "not_before", "deadline", "dispatched_at", "lease_until", "started_at", "finished_at")
PASS = "UPDATE job SET " + ", ".join(f"{name} = {name} - make_interval(secs => :seconds)" for name in TIMES)
TABLES = ("job", "attempt", "artifact", "job_event")  # a job takes its request along
LEASE, DISPATCH_TIMEOUT, LIMIT = 60, 15, 5000
REAPED = {
    "reap_leases": {"retry_base_seconds": 2, "retry_cap_seconds": 8},
    "reap_expired": {"limit": LIMIT},
    "reap_cancelled": {"limit": LIMIT},
}
CHARGED = "outcome IN ('rejected', 'failed') OR reason = 'lease_lost'"  # attempts that were the job's own fault
SIGHT = f"""
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
    """What one worker process holds: claims it believes to be its own, and a line of suspects."""

    name: str
    ledger: Ledger
    hand: list[Claim] = field(default_factory=list)
    line: list[Hint] = field(default_factory=list)


class World:
    """One queue, empty at first. `close` it."""

    def __init__(self, queue: Queue, loop: asyncio.AbstractEventLoop) -> None:
        self.queue = queue
        self.loop = loop
        for table in TABLES:
            queue.rows(f"DELETE FROM {table}")
        quick = queue.settings.model_copy(update={"lease_seconds": LEASE, "heartbeat_seconds": 10})
        self.workers = [Worker(name, Ledger(quick, name)) for name in ("a", "b")]
        self.redis: list[Hint] = []

    def close(self) -> None:
        for worker in self.workers:
            self.loop.run_until_complete(worker.ledger.close())

    def sight(self) -> dict[UUID, Any]:
        """Every job, with how many attempts and accepted artifacts are recorded of it."""
        return {row.id: row for row in self.queue.rows(SIGHT)}

    def dispatch(self) -> None:
        self.queue.ask("dispatch_ripen", limit=LIMIT)
        rows = self.queue.ask("dispatch", min_depth=4, depth=len(self.redis))
        self.redis += [Hint(*row) for row in rows]

    def claim(self, worker: Worker, most: int) -> Answer:
        """Take messages and claim; what may not run yet is taken again later."""
        hints, self.redis = self.redis[:most], self.redis[most:]
        answer = self._take(worker, worker.ledger.claim(hints))
        worker.line += answer.suspects
        self.redis += answer.barred
        return answer

    def claim_suspect(self, worker: Worker) -> Answer:
        answer = self._take(worker, worker.ledger.claim_suspect(worker.line))
        worker.line = answer.suspects
        return answer

    def _take(self, worker: Worker, asked: Coroutine[Any, Any, Answer | None]) -> Answer:
        answer = self.loop.run_until_complete(asked)
        assert answer is not None, "nobody else decides which suspect is next"
        worker.hand += answer.claims
        return answer

    def heartbeat(self, worker: Worker) -> dict[tuple[UUID, int], Beat]:
        return self.loop.run_until_complete(worker.ledger.heartbeat(worker.hand))

    def finish(self, worker: Worker, finishes: Sequence[Finish]) -> set[tuple[UUID, int]]:
        """Write these outcomes; which were accepted."""
        return set(self.loop.run_until_complete(worker.ledger.finish(finishes)))

    def give_back(self, worker: Worker) -> None:
        self.loop.run_until_complete(worker.ledger.give_back(worker.line))
        worker.line = []

    def reap(self) -> None:
        for name, parameters in REAPED.items():
            self.queue.ask(name, **parameters)
        silent = {Hint(*row) for row in self.queue.ask("reap_silent", timeout_seconds=DISPATCH_TIMEOUT)}
        lost = sorted(silent - set(self.redis))
        self.queue.ask(
            "reap_dispatches",
            ids=[hint.job_id for hint in lost],
            dispatch_nos=[hint.dispatch_no for hint in lost],
            timeout_seconds=DISPATCH_TIMEOUT,
        )

    def wait(self, seconds: float) -> None:
        self.queue.rows(PASS, seconds=seconds)
