"""`Attempts`: runs a claimed job: follows its kind's plan, step by step, and returns how it ended.

A plan that is interrupted, for whatever reason, leaves nothing behind: the job's next attempt starts it again.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from dataclasses import replace
from typing import Any

from thothy_ai.db.fragments import DEATHS_TO_RUN_ALONE
from thothy_ai.engine.api.errors import (
    ConnectionLostError,
    EngineError,
    EngineLostError,
    EngineNotAcceptingError,
    EngineStoppedError,
    GrammarError,
    InvalidRequestError,
    PromptTooLongError,
    UninvolvedError,
)
from thothy_ai.errors import DatabaseError
from thothy_ai.jobs import Context, Previous, RejectionReason
from thothy_ai.jobs.api.plan import Outputs
from thothy_ai.plans.judges import Judges
from thothy_ai.plans.plans import PlanError, PlannedJob, Step
from thothy_ai.settings import Settings
from thothy_ai.worker import outcomes
from thothy_ai.worker.calls import AttemptCalls, NotSentError
from thothy_ai.worker.claims import Claim
from thothy_ai.worker.engine_monitor import EngineMonitor
from thothy_ai.worker.finish import MAX_COMPARISONS, NO_USAGE, Finish, Usage
from thothy_ai.worker.job_store import JobStore, is_unstorable
from thothy_ai.worker.live import LiveText
from thothy_ai.worker.outcomes import Retry
from thothy_ai.worker.quarantine import Solitude
from thothy_ai.worker.retry import retry_until_answered
from thothy_ai.worker.running_call import EngineAbortedError

logger = logging.getLogger(__name__)

MAX_FREE_ATTEMPTS = 20  # beyond this many attempts without a failure, a lost connection counts as one
REFUSALS = (PromptTooLongError, GrammarError, InvalidRequestError)


class StoppedError(Exception):
    """The attempt's task was cancelled. `usage` is what it had used by then."""

    def __init__(self, usage: Usage) -> None:
        self.usage = usage
        super().__init__("stopped")


class Attempts:
    """Runs attempts, and keeps whose turn it is to run alone. What a kind does runs in the processes of `judges`."""

    def __init__(
        self,
        settings: Settings,
        store: JobStore,
        monitor: EngineMonitor,
        judges: Judges,
        live: LiveText,
    ) -> None:
        self._settings = settings
        self._store = store
        self._monitor = monitor
        self._judges = judges
        self._live = live
        self._solitude = Solitude(store, settings.lease_seconds)
        self._retry = Retry(settings.retry_base_seconds, settings.retry_cap_seconds)

    async def run(self, claim: Claim) -> Finish:
        """How this attempt ended. Raises `StoppedError` when its task is cancelled."""
        calls = AttemptCalls(self._monitor, self._live, self._judges.early_rejection, claim)
        try:
            if claim.engine_deaths < DEATHS_TO_RUN_ALONE:
                return await self._ended(claim, calls)
            async with self._solitude.turn(claim.session_id) as alone:
                if alone:
                    return await self._ended(claim, calls)
            return replace(outcomes.released(claim, "not_alone"), delay_seconds=self._settings.lease_seconds)
        except asyncio.CancelledError:
            raise StoppedError(calls.usage) from None

    def failed(self, claim: Claim, reason: str, detail: str, usage: Usage = NO_USAGE) -> Finish:
        """It failed, and is retried later unless its failures are used up."""
        return outcomes.failed(claim, reason, detail, self._retry, random.random(), usage)  # noqa: S311 - jitter

    async def _ended(self, claim: Claim, calls: AttemptCalls) -> Finish:
        """Follow the plan, and tell apart how that can fail."""
        try:
            return await self._followed(claim, calls)
        except PlanError as error:
            finish = self._not_begun(claim, error)
        except NotSentError:
            finish = outcomes.released(claim, "engine_away")
        except EngineAbortedError:
            finish = outcomes.released(claim, "engine_aborted")
        except (EngineLostError, EngineStoppedError) as error:
            finish = await self._lost(claim, error, calls)
        except EngineError as error:
            finish = self._refused(claim, error, calls)
        except OSError as error:  # a process that judges cannot be started
            finish = self.failed(claim, "worker_error", repr(error))
        return replace(finish, usage=calls.usage)

    async def _followed(self, claim: Claim, calls: AttemptCalls) -> Finish:
        job = PlannedJob(claim.kind, claim.request, self._context(claim))
        answered: list[Outputs] = []
        answered_at, last = None, None
        while isinstance(step := await self._judges.advance(job, answered, last), Step):
            if claim.overdraws(calls.usage.engine.compute_seconds):
                return outcomes.budget_spent(claim, calls.usage)
            answered.append(await calls.run(step.calls))
            answered_at, last = time.monotonic(), step
        if step.reason is RejectionReason.PROMPT_TOO_LONG and not calls.text.strip():
            return replace(outcomes.hopeless(claim, step.reason, step.detail), usage=calls.usage)
        finish = outcomes.judged(claim, step, calls.text, calls.usage, calls.provenance(step.version))
        return await self.compared(claim, replace(finish, answered_at=answered_at))

    async def compared(self, claim: Claim, finish: Finish) -> Finish:
        """The same, or a rejection if an accepted artifact is nearly the same as another recent one."""
        days, judged = self._settings.duplicate_days, finish.judged
        if judged is None or not judged.signature or not days:
            return finish
        try:
            others, jobs = await retry_until_answered(
                "the search of near-duplicates",
                lambda: self._store.similar(claim, judged.locale, judged.signature, days),
                is_unstorable,
            )
        except DatabaseError as error:
            logger.warning("near-duplicates of job %s cannot be searched for: %s", claim.key, error)
            return replace(finish, comparisons=MAX_COMPARISONS)
        found = await self._judges.near_duplicate(claim.kind, judged.body, others) if others else None
        if found is not None:
            return outcomes.duplicate(claim, finish, found)
        return replace(finish, compared_with=jobs, comparisons=finish.comparisons + 1)

    def _context(self, claim: Claim) -> Context:
        previous = _previous(claim.previous) if claim.previous else None
        info = self._monitor.info
        return Context(info.max_context, info.parameters, previous) if info else Context(previous=previous)

    def _not_begun(self, claim: Claim, error: PlanError) -> Finish:
        if error.hopeless:
            return outcomes.hopeless(claim, error.reason, error.detail)
        return self.failed(claim, error.reason, error.detail)

    async def _lost(self, claim: Claim, error: EngineError, calls: AttemptCalls) -> Finish:
        """Its engine was stopped or died, or only the connection to it broke.

        An engine that names the members of the step it died of clears all others; of one that died without a word,
        those it had not begun with are cleared by the record that it left.
        """
        usage, detail = calls.usage, str(error)
        session_id = usage.engine_session_id
        if isinstance(error, EngineStoppedError | UninvolvedError):
            self._monitor.await_new_session(session_id)
            return outcomes.released(claim, error.code, detail, usage)
        if not isinstance(error, ConnectionLostError):
            self._monitor.await_new_session(session_id)
            return outcomes.engine_died(claim, detail, usage)
        if not await self._monitor.outlived(session_id):
            if self._monitor.may_have_begun(session_id, calls.request_ids):
                return outcomes.engine_died(claim, detail, usage)
            return outcomes.released(claim, UninvolvedError.code, detail, usage)
        if claim.tries - claim.failures > MAX_FREE_ATTEMPTS:
            return self.failed(claim, "connection_lost", detail, usage)
        return outcomes.released(claim, "connection_lost", detail, usage)

    def _refused(self, claim: Claim, error: EngineError, calls: AttemptCalls) -> Finish:
        """It was refused, or failed as it ran."""
        if isinstance(error, REFUSALS):
            return outcomes.hopeless(claim, error.code, str(error))
        if isinstance(error, EngineNotAcceptingError):
            self._monitor.await_new_session(calls.usage.engine_session_id)
            return outcomes.released(claim, error.code)
        return self._faulty(claim, error)

    def _faulty(self, claim: Claim, error: EngineError) -> Finish:
        """A fault of the engine's costs the job none of its attempts, as often as it has some."""
        free = claim.tries - claim.failures
        if free > claim.max_attempts:
            return self.failed(claim, error.code, str(error))
        delay_seconds = self._retry.delay(free, random.random())  # noqa: S311 - jitter
        return replace(outcomes.released(claim, error.code, str(error)), delay_seconds=delay_seconds)


def _previous(rejected: dict[str, Any]) -> Previous | None:
    try:
        reason = RejectionReason(rejected["reason"])
    except ValueError:  # of a newer worker
        return None
    return Previous(reason, rejected["detail"], rejected["artifact"])
