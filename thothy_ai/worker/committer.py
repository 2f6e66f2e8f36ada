"""`Committer`: commits the outcomes of many attempts in one transaction; then their messages can be acknowledged."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from thothy_ai.crash_points import crash_point
from thothy_ai.errors import DatabaseError
from thothy_ai.worker import metrics, outcomes
from thothy_ai.worker.batcher import Batcher
from thothy_ai.worker.job_in_flight import JobInFlight
from thothy_ai.worker.record.finish import Finish
from thothy_ai.worker.record.store import JobStore, retry_until_answered
from thothy_ai.worker.record.unbilled import UnbilledUsage

logger = logging.getLogger(__name__)


class Committer:
    """Owned by the worker's loop. `on_ended` gets the jobs that this worker no longer runs.

    `compare_again` gets a job whose output must be compared with artifacts that were accepted since.
    """

    def __init__(
        self,
        finishes: Batcher[tuple[JobInFlight, Finish]],
        store: JobStore,
        unbilled: UnbilledUsage,
        compare_again: Callable[[JobInFlight, Finish], None],
        on_ended: Callable[[Sequence[JobInFlight]], None],
    ) -> None:
        self._finishes = finishes
        self._store = store
        self._unbilled = unbilled
        self._compare_again = compare_again
        self._on_ended = on_ended

    async def run(self) -> None:
        """Commit what comes, many attempts at once, until cancelled."""
        while True:
            batch = await self._finishes.take()
            try:
                await self._commit(batch)
            except DatabaseError as error:
                logger.warning("a batch of outcomes is refused, writing them one by one: %s", error)
                for job, finish in batch:
                    await self._commit_alone(job, finish)

    async def _commit(self, batch: list[tuple[JobInFlight, Finish]]) -> None:
        finishes = [finish for _, finish in batch]
        states, outdated = await retry_until_answered(
            "finish", lambda: self._store.finish(finishes), lambda error: error.is_unstorable
        )
        crash_point("after_commit")
        ended = []
        for job, finish in batch:
            if finish.attempt_ref in outdated:
                self._compare_again(job, finish)
                continue
            state = states.get(finish.attempt_ref)
            metrics.count(job.claim.kind, finish, state)
            if state is None:
                self._unbilled.add_fenced(finish)
            ended.append(job)
        self._on_ended(ended)

    async def _commit_alone(self, job: JobInFlight, finish: Finish) -> None:
        for outcome in (finish, outcomes.unstorable(finish, "Postgres refuses its outcome")):
            try:
                return await self._commit([(job, outcome)])
            except DatabaseError as error:
                logger.warning("the outcome of job %s is refused: %s", job.claim.key, error)
        self._on_ended([job])  # its lease runs out, and the reaper takes it back
        return None
