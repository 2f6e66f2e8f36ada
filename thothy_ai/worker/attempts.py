"""`Attempts`: runs a claimed job: its kind's prompt, the engine, the judgement. Returns how it ended."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from pydantic import ValidationError

from thothy_ai.crash_points import crash_point
from thothy_ai.db.fragments import DEATHS_TO_RUN_ALONE
from thothy_ai.engine.api import FinishReason, GenerationRequest, GenerationResult
from thothy_ai.engine.errors import (
    EngineError,
    EngineLostError,
    EngineNotAcceptingError,
    EngineStoppedError,
    GrammarError,
    InvalidRequestError,
    PromptTooLongError,
)
from thothy_ai.jobs.problems import first_problem
from thothy_ai.jobs.registry import UnknownKindError
from thothy_ai.settings import Settings
from thothy_ai.worker import follow_ups, outcomes
from thothy_ai.worker.claims import Claim
from thothy_ai.worker.engine_monitor import EngineMonitor
from thothy_ai.worker.finish import NO_USAGE, Finish, Usage
from thothy_ai.worker.generations import Prepared, judge, prepare
from thothy_ai.worker.job_store import JobStore
from thothy_ai.worker.live import LiveText
from thothy_ai.worker.outcomes import Retry
from thothy_ai.worker.quarantine import alone_within

if TYPE_CHECKING:  # the client's module is only needed where a client is made
    from thothy_ai.engine.client import EngineClient, Generation

logger = logging.getLogger(__name__)

ABORT_SECONDS = 2.0  # for an aborted generation to report its usage
MAX_FREE_ATTEMPTS = 20  # beyond this many attempts without a failure, a lost connection counts as one
REFUSALS = (PromptTooLongError, GrammarError, InvalidRequestError)


class StoppedError(Exception):
    """The attempt's task was cancelled. `usage` is what it had used by then."""

    def __init__(self, usage: Usage) -> None:
        self.usage = usage
        super().__init__("stopped")


class Attempts:
    """Runs attempts; keeps no state about them. Judging is CPU-bound, and runs in `judges`."""

    def __init__(
        self,
        settings: Settings,
        store: JobStore,
        client: EngineClient,
        monitor: EngineMonitor,
        judges: Executor,
        live: LiveText,
    ) -> None:
        self._settings = settings
        self._store = store
        self._client = client
        self._monitor = monitor
        self._judges = judges
        self._live = live
        self._retry = Retry(settings.retry_base_seconds, settings.retry_cap_seconds)

    async def run(self, claim: Claim) -> Finish:
        """How this attempt ended. Raises `StoppedError` when its task is cancelled."""
        lease_seconds = self._settings.lease_seconds
        try:
            prepared = _prepare(claim)
        except UnknownKindError as error:
            return outcomes.hopeless(claim, "unknown_kind", str(error))
        except (ValidationError, InvalidRequestError) as error:
            return outcomes.hopeless(claim, "invalid_job", _first_line(error))
        try:
            if claim.engine_deaths >= DEATHS_TO_RUN_ALONE and not await alone_within(lease_seconds, self._store, claim):
                return replace(outcomes.released(claim, "not_alone"), delay_seconds=lease_seconds)
            return await self._generate(claim, prepared)
        except asyncio.CancelledError:
            raise StoppedError(NO_USAGE) from None

    def failed(self, claim: Claim, reason: str, detail: str, usage: Usage = NO_USAGE) -> Finish:
        """It failed, and is retried later unless its failures are used up."""
        return outcomes.failed(claim, reason, detail, self._retry, random.random(), usage)  # noqa: S311 - jitter

    async def _generate(self, claim: Claim, prepared: Prepared) -> Finish:
        session_id = self._monitor.session_id
        try:
            generation = await self._submit(prepared.generation)
        except EngineLostError:
            self._monitor.recheck()
            return outcomes.released(claim, "engine_away")
        except EngineError as error:
            return self._refused(claim, error, Usage(session_id))
        try:
            with self._live.offered(claim, generation):
                result = await self._result(generation)
            crash_point("after_engine")
        except (EngineLostError, EngineStoppedError) as error:
            return await self._lost(claim, error, Usage.of(generation.usage, session_id))
        except EngineError as error:
            return self._refused(claim, error, Usage.of(generation.usage, session_id))
        answered_at = time.monotonic()
        usage = Usage.of(result.usage, session_id)
        if result.finish_reason is FinishReason.ABORTED:
            return outcomes.released(claim, "engine_aborted", usage=usage)
        return replace(await self._judged(claim, prepared, result, usage), answered_at=answered_at)

    async def _submit(self, request: GenerationRequest) -> Generation:
        if not self._monitor.is_ready:
            raise EngineLostError("the engine was lost since the claim")
        return await self._client.submit(request)

    async def _lost(self, claim: Claim, error: EngineError, usage: Usage) -> Finish:
        """Its engine was stopped or died, or only the connection to it broke."""
        detail = str(error)
        if isinstance(error, EngineStoppedError):
            self._monitor.await_new_session()
            return outcomes.released(claim, error.code, detail, usage)
        if not await self._monitor.outlived(usage.engine_session_id):
            return outcomes.engine_died(claim, detail, usage)
        if claim.attempt - claim.failures > MAX_FREE_ATTEMPTS:
            return self.failed(claim, "connection_lost", detail, usage)
        return outcomes.released(claim, "connection_lost", detail, usage)

    def _refused(self, claim: Claim, error: EngineError, usage: Usage) -> Finish:
        """It was refused, or failed as it ran."""
        if isinstance(error, REFUSALS):
            return replace(outcomes.hopeless(claim, error.code, str(error)), usage=usage)
        if isinstance(error, EngineNotAcceptingError):
            self._monitor.await_new_session()
            return outcomes.released(claim, error.code)
        return self.failed(claim, error.code, str(error), usage)

    async def _result(self, generation: Generation) -> GenerationResult:
        try:
            return await generation.result()
        except asyncio.CancelledError:
            with suppress(EngineError, TimeoutError):
                async with asyncio.timeout(ABORT_SECONDS):
                    await generation.abort()
                    await generation.result()
            raise StoppedError(Usage.of(generation.usage, self._monitor.session_id)) from None

    async def _judged(self, claim: Claim, prepared: Prepared, result: GenerationResult, usage: Usage) -> Finish:
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._judges, self._judge, claim, prepared, result, usage)
        except asyncio.CancelledError:
            raise StoppedError(usage) from None

    def _judge(self, claim: Claim, prepared: Prepared, result: GenerationResult, usage: Usage) -> Finish:
        try:
            judgement = judge(prepared, result)
            more = follow_ups.drafted(claim, judgement.follow_ups, self._settings)
            locale = prepared.kind.locale(prepared.request)
            return outcomes.judged(claim, judgement.verdict, result.text, locale, usage, more)
        except Exception as error:  # a kind may be third-party code: its error fails this job alone
            logger.exception("kind %s cannot judge job %s", claim.kind, claim.key)
            return self.failed(claim, "kind_error", repr(error), usage)


def _prepare(claim: Claim) -> Prepared:
    return prepare(
        claim.kind,
        claim.request,
        key=claim.key,
        seed=claim.seed,
        tenant=claim.tenant,
        priority=claim.priority,
        deadline=claim.deadline,
    )


def _first_line(error: Exception) -> str:
    if isinstance(error, ValidationError):
        field, message = first_problem(error)
        return f"{field or 'request'}: {message}"
    return str(error)
