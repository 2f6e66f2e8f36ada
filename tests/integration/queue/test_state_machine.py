"""No job is lost and none is done twice, in any interleaving of two workers, dispatcher, reaper, Redis and the clock.

Moves are drawn by Hypothesis; each is the service's own statement (`queue_world`). Every run draws the same ones.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any
from uuid import UUID, uuid4

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.support.echo_kind import Echo
from tests.support.queue_bench import Queue
from tests.support.queue_world import SIZES, Worker, World
from thothy_ai.admin import jobs as admin_jobs
from thothy_ai.db.fragments import DEATHS_FOR_SMALL_GROUPS, DEATHS_TO_RUN_ALONE
from thothy_ai.db.states import TERMINAL, JobState, ReviewState
from thothy_ai.jobs import RejectionReason
from thothy_ai.plans.advance import Judgement
from thothy_ai.worker import outcomes
from thothy_ai.worker.job_in_flight import StopReason
from thothy_ai.worker.outcomes import MAX_ENGINE_DEATHS, Retry
from thothy_ai.worker.record.claims import Claim
from thothy_ai.worker.record.finish import NO_USAGE, Finish

RETRY = Retry(2, 8)
OUTPUT = {"echo": "ok"}
JOBS = 8  # at most
FINAL = ("state", "reason", "attempt", "failures", "tried", "charged")  # of a terminal job: nothing changes them


def rejected(reason: RejectionReason) -> Callable[[Claim], Finish]:
    judgement = Judgement(False, reason, "because", "en", "1", OUTPUT)
    return lambda claim: outcomes.judged(claim, judgement, "raw", NO_USAGE)


def accepted(claim: Claim) -> Finish:
    return outcomes.judged(claim, Judgement(True, None, "", "en", "1", OUTPUT), "raw", NO_USAGE)


ENDS: dict[str, Callable[[Claim], Finish]] = {
    "accepted": accepted,
    "rejected": rejected(RejectionReason.REPETITION),
    "refused": rejected(RejectionReason.PROMPT_TOO_LONG),
    "failed": lambda claim: outcomes.failed(claim, "engine_error", "", RETRY, 0.5),
    "engine died": lambda claim: outcomes.engine_died(claim, ""),
    "given back": lambda claim: outcomes.released(claim, "shutdown"),
    "hopeless": lambda claim: outcomes.dead(claim, "prompt_too_long", ""),
}
WORKERS = st.integers(0, 1)


def here(jobs: dict[UUID, Any], worker: Worker) -> list[Any]:
    """What runs on this worker's engine."""
    return [job for job in jobs.values() if (job.state, job.engine_session_id) == ("running", worker.session_id)]


def lone(jobs: dict[UUID, Any], worker: Worker) -> list[Any]:
    """What is to run there alone."""
    return [job for job in here(jobs, worker) if job.engine_deaths >= DEATHS_TO_RUN_ALONE]


class QueueMachine(RuleBasedStateMachine):
    """`world` is given by the test. `ended` are the terminal jobs as they were first seen."""

    def __init__(self, queue: Queue, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self.world = World(queue, loop)
        self.ended: dict[UUID, Any] = {}
        self.pardoned: Counter[UUID] = Counter()  # charged attempts before a redrive
        self.ids: list[UUID] = []

    def teardown(self) -> None:
        try:
            self._everything_ends()
        finally:
            self.world.close()

    # What may happen.

    @initialize(deaths=st.lists(st.sampled_from([0, 1, 2, 3]), min_size=3, max_size=5))
    def begin(self, deaths: list[int]) -> None:
        """Jobs with a past."""
        for number in deaths:
            self.enqueue(2, None)
            query = "UPDATE job SET engine_deaths = :number WHERE id = :id"
            self.world.queue.rows(query, number=number, id=self.ids[-1])

    @precondition(lambda self: len(self.ids) < JOBS)
    @rule(max_attempts=st.integers(1, 3), seconds=st.none() | st.sampled_from([5, 100]))
    def enqueue(self, max_attempts: int, seconds: int | None) -> None:
        job = self.world.queue.producer.enqueue(Echo(text=f"ok {len(self.ids)}"), max_attempts=max_attempts)
        if seconds:  # a producer would refuse one that has passed
            query = "UPDATE job SET deadline = now() + make_interval(secs => :seconds) WHERE id = :id"
            self.world.queue.rows(query, seconds=seconds, id=job.id)
        self.ids.append(job.id)

    @rule()
    def dispatch(self) -> None:
        self.world.dispatch()

    @precondition(lambda self: self.world.redis)
    @rule()
    def flush_redis(self) -> None:
        self.world.redis.clear()

    @precondition(lambda self: self.world.redis)
    @rule()
    def deliver_twice(self) -> None:
        self.world.redis += self.world.redis[:1]

    @precondition(lambda self: self.world.redis)
    @rule(worker=WORKERS, limit=st.integers(1, 4))
    def claim(self, worker: int, limit: int) -> None:
        before = self.world.jobs()
        asked = self.world.workers[worker]
        result = self.world.claim(asked, limit)
        assert not (lone(before, asked) and result.claims)
        assert all(before[claim.id].engine_deaths == 0 for claim in result.claims)

    @rule(worker=WORKERS)
    def claim_quarantined(self, worker: int) -> None:
        before, asked = self.world.jobs(), self.world.workers[worker]
        new = [claim for claim in self.world.claim_quarantined(asked).claims if before[claim.id].state != "running"]
        assert not (new and lone(before, asked))
        assert all(claim.engine_deaths for claim in new)
        assert len({min(claim.engine_deaths, DEATHS_TO_RUN_ALONE) for claim in new}) <= 1

    @rule(worker=WORKERS, twice=st.booleans())
    def work(self, worker: int, twice: bool) -> None:
        """Everything that brings jobs to a worker, in one step."""
        self.world.dispatch()
        self.world.redis *= 1 + twice
        self.claim(worker, JOBS)
        self.claim_quarantined(worker)

    @precondition(lambda self: any(worker.claims for worker in self.world.workers))
    @rule()
    def engines_die(self) -> None:
        """With everything that both workers run in flight; each worker's has a new session then."""
        for worker in self.world.workers:
            for claim in list(worker.claims):
                self._finish(worker, claim, outcomes.engine_died(claim, ""), forget=True)
            worker.session_id = uuid4()

    @precondition(lambda self: any(worker.claims for worker in self.world.workers))
    @rule(worker=WORKERS)
    def heartbeat(self, worker: int) -> None:
        """Extend leases; stop jobs that are to be stopped. Fenced claims are kept: a zombie may still finish them."""
        asked = self.world.workers[worker]
        leases = self.world.heartbeat(asked)
        for claim in list(asked.claims):
            lease = leases.get(claim.attempt_ref)
            if lease is not None and (lease.cancel_requested or lease.expired):
                reason = StopReason.CANCELLED if lease.cancel_requested else StopReason.EXPIRED
                self._finish(asked, claim, outcomes.stopped(claim, reason), forget=True)

    @precondition(lambda self: any(worker.claims for worker in self.world.workers))
    @rule(worker=WORKERS, which=st.integers(0, JOBS), end=st.sampled_from(sorted(ENDS)), forget=st.booleans())
    def finish(self, worker: int, which: int, end: str, forget: bool) -> None:
        """End a claim, even a long lost one; a worker that gets no result does so again later."""
        asked = self.world.workers[worker]
        if asked.claims:
            claim = asked.claims[which % len(asked.claims)]
            self._finish(asked, claim, ENDS[end](claim), forget)

    @precondition(lambda self: self.ids)
    @rule(which=st.integers(0, JOBS))
    def cancel(self, which: int) -> None:
        job_id = self.ids[which % len(self.ids)]
        assert (job_id in admin_jobs.cancel(self.world.queue.engine, [job_id])) == (job_id not in self.ended)

    @precondition(lambda self: self.ended)
    @rule(which=st.integers(0, JOBS))
    def redrive(self, which: int) -> None:
        job_id = sorted(self.ended)[which % len(self.ended)]
        redriven = admin_jobs.redrive(self.world.queue.engine, [job_id])
        assert (job_id in redriven) == (self.ended[job_id].state != JobState.SUCCEEDED)
        if redriven:
            self.pardoned[job_id] = self.ended.pop(job_id).charged

    @rule(seconds=st.sampled_from([1, 10, 70]))
    def time_passes(self, seconds: int) -> None:
        self.world.wait(seconds)

    @rule()
    def reap(self) -> None:
        self.world.reap()

    @rule(worker=WORKERS)
    def restart(self, worker: int) -> None:
        """SIGTERM: it gives back what it has and starts again."""
        asked = self.world.workers[worker]
        for claim in asked.claims:
            self._finish(asked, claim, outcomes.released(claim, "shutdown"), forget=False)
        asked.claims = []
        self.world.give_back(asked)

    def _finish(self, worker: Worker, claim: Claim, finish: Finish, forget: bool) -> None:
        job = self.world.jobs()[claim.id]
        ours = (job.state, job.attempt, job.worker) == ("running", claim.attempt, worker.name)
        assert self.world.finish(worker, [finish]) == ({claim.attempt_ref} if ours else set())
        if forget:
            worker.claims.remove(claim)

    # What must hold.

    @invariant()
    def the_record_is_right(self) -> None:
        jobs = self.world.jobs()
        assert set(jobs) == set(self.ids)
        for job in jobs.values():
            self._job_is_right(job)
        for worker in self.world.workers:
            quarantined = [job for job in here(jobs, worker) if job.engine_deaths]
            few = [job for job in quarantined if job.engine_deaths == DEATHS_FOR_SMALL_GROUPS]
            assert len(quarantined) <= SIZES.once + SIZES.twice + SIZES.lone
            assert len([job for job in quarantined if job.engine_deaths < DEATHS_FOR_SMALL_GROUPS]) <= SIZES.once
            assert len(few) <= SIZES.twice
            assert len(lone(jobs, worker)) <= SIZES.lone

    def _job_is_right(self, job: Any) -> None:
        assert job.accepted == (job.state == JobState.SUCCEEDED and job.review != ReviewState.NEEDS_EDIT)
        assert job.failures == job.charged - self.pardoned[job.id] <= job.max_attempts
        assert job.engine_deaths <= MAX_ENGINE_DEATHS
        assert job.tried == job.attempt - (job.state == JobState.RUNNING)
        assert (job.state == JobState.RUNNING) == (job.lease_until is not None) == (job.worker is not None)
        holders = [
            worker.name
            for worker in self.world.workers
            for claim in worker.claims
            if claim.attempt_ref == (job.id, job.attempt)
        ]
        assert len(holders) <= 1
        assert job.state != JobState.RUNNING or holders in ([], [job.worker])
        if job.state in TERMINAL:
            first = self.ended.setdefault(job.id, job)
            assert all(getattr(first, name) == getattr(job, name) for name in FINAL)
        else:
            assert job.id not in self.ended

    def _everything_ends(self) -> None:
        """Left to themselves, workers that answer bring every job to an end."""
        for _ in range(30):
            self.world.wait(100)
            self.world.reap()
            self.world.dispatch()
            self.world.claim(self.world.workers[0], JOBS)
            self.world.claim_quarantined(self.world.workers[0])
            claims, self.world.workers[0].claims = self.world.workers[0].claims, []
            self.world.finish(self.world.workers[0], [accepted(claim) for claim in claims])
            if all(job.state in TERMINAL for job in self.world.jobs().values()):
                break
        self.the_record_is_right()
        assert set(self.ended) == set(self.ids)


def test_no_job_is_lost_and_none_is_done_twice(queue: Queue) -> None:
    with asyncio.Runner() as runner:
        run_state_machine_as_test(
            lambda: QueueMachine(queue, runner.get_loop()),
            settings=settings(max_examples=40, stateful_step_count=40, deadline=None, derandomize=True, database=None),
        )
