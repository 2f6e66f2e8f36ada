"""`AttemptRunner`: runs a claimed job: follows its kind's plan on the engine, and returns the outcome.

An interrupted plan leaves nothing behind: the job's next attempt starts it again.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import UUID

from thothy_ai.crash_points import crash_point
from thothy_ai.db.fragments import DEATHS_TO_RUN_ALONE
from thothy_ai.engine.api import EngineInfo, GenerationRequest
from thothy_ai.engine.api.errors import (
    ConnectionLostError,
    EngineError,
    EngineLostError,
    EngineNotAcceptingError,
    EngineStoppedError,
    UninvolvedError,
    UnknownAdapterError,
)
from thothy_ai.errors import DatabaseError
from thothy_ai.http.errors import ApiError
from thothy_ai.http.openai.translation import translated
from thothy_ai.jobs import Previous, RejectionReason
from thothy_ai.jobs.api.plan import ApiBody, Outputs
from thothy_ai.plans.advance import PlanError, PlannedJob
from thothy_ai.plans.context import NO_DOUBTS, context_of, verifier_of
from thothy_ai.plans.follow import CallLog, follow, side_by_side
from thothy_ai.plans.judges import Judges
from thothy_ai.plans.requests import RequestFactory, Translated
from thothy_ai.plans.running_call import REFUSALS, EngineAbortedError, RunningCall, total
from thothy_ai.settings import Settings
from thothy_ai.worker import outcomes
from thothy_ai.worker.engine_monitor import EngineMonitor
from thothy_ai.worker.live import LivePublisher
from thothy_ai.worker.outcomes import Retry
from thothy_ai.worker.quarantine import ExclusiveSlot
from thothy_ai.worker.record.claims import Claim
from thothy_ai.worker.record.finish import MAX_COMPARISONS, NO_USAGE, AttemptUsage, Finish
from thothy_ai.worker.record.store import JobStore, retry_until_answered
from thothy_ai.worker.voices import Example, Voices

if TYPE_CHECKING:  # the client's module is only needed where a client is made
    from thothy_ai.engine.serving.client import Generation

logger = logging.getLogger(__name__)

UNLOADED_SECONDS = 5.0  # until the dispatcher knows that an engine has unloaded an adapter
MAX_FREE_ATTEMPTS = 20  # beyond this many attempts without a failure, a lost connection counts as one


class StoppedError(Exception):
    """The attempt's task was cancelled. `usage` is what it had used by then."""

    def __init__(self, usage: AttemptUsage) -> None:
        self.usage = usage
        super().__init__("stopped")


class NotSentError(Exception):
    """The engine was lost before a step's first call could be sent: no call was in flight."""


class AdapterChangedError(Exception):
    """The attempt used two sets of weights, since the adapter was replaced meanwhile."""


class BudgetSpentError(Exception):
    """The job's attempts have used up its compute budget."""


class AttemptRunner:
    """Runs attempts, and decides which job may run alone. Kinds' code runs in the processes of `judges`."""

    def __init__(
        self,
        settings: Settings,
        store: JobStore,
        monitor: EngineMonitor,
        judges: Judges,
        live: LivePublisher,
    ) -> None:
        self._settings = settings
        self._store = store
        self._monitor = monitor
        self._judges = judges
        self._live = live
        self._voices = Voices(store)
        self._exclusive = ExclusiveSlot(store, settings.lease_seconds)
        self._retry = Retry(settings.retry_base_seconds, settings.retry_cap_seconds)
        self._warned: set[tuple[str, str]] = set()  # kinds whose KV budget an engine's session cannot serve

    async def run(self, claim: Claim) -> Finish:
        """Run the attempt and return its outcome. Raises `StoppedError` when its task is cancelled."""
        calls = _AttemptCalls(claim, self._monitor, self._live)
        try:
            if claim.engine_deaths < DEATHS_TO_RUN_ALONE:
                return await self._follow(claim, calls)
            async with self._exclusive.turn(claim.session_id) as alone:
                if alone:
                    return await self._follow(claim, calls)
            return replace(outcomes.released(claim, "not_alone"), delay_seconds=self._settings.lease_seconds)
        except asyncio.CancelledError:
            raise StoppedError(calls.usage) from None

    def failed(self, claim: Claim, reason: str, detail: str, usage: AttemptUsage = NO_USAGE) -> Finish:
        """The outcome of a failed attempt, retried later unless the job's failures are used up."""
        return outcomes.failed(claim, reason, detail, self._retry, random.random(), usage)  # noqa: S311 - jitter

    async def compared(self, claim: Claim, finish: Finish) -> Finish:
        """The same outcome, or a rejection if an accepted artifact nearly equals another recent one."""
        days, judged = self._settings.duplicate_days, finish.judged
        if judged is None or not judged.signature or not days:
            return finish
        try:
            others, jobs = await retry_until_answered(
                "the search of near-duplicates",
                lambda: self._store.similar(claim, judged.locale, judged.signature, days),
                lambda error: error.is_unstorable,
            )
        except DatabaseError as error:
            logger.warning("near-duplicates of job %s cannot be searched for: %s", claim.key, error)
            return replace(finish, comparisons=MAX_COMPARISONS)
        found = await self._judges.near_duplicate(claim.kind, judged.body, others) if others else None
        if found is not None:
            return outcomes.duplicate(claim, finish, found)
        return replace(finish, compared_with=jobs, comparisons=finish.comparisons + 1)

    async def _follow(self, claim: Claim, calls: _AttemptCalls) -> Finish:
        """Follow the plan, and turn each way of failing into an outcome."""
        try:
            finish = await self._judged(claim, calls)
        except PlanError as error:
            outcome = outcomes.dead if error.permanent else self.failed
            finish = outcome(claim, error.reason, error.detail)
        except BudgetSpentError:
            finish = outcomes.budget_spent(claim, calls.usage)
        except NotSentError:
            finish = outcomes.released(claim, "engine_away")
        except EngineAbortedError:
            finish = outcomes.released(claim, "engine_aborted")
        except AdapterChangedError:
            finish = outcomes.released(claim, "adapter_changed", f"the adapter {claim.adapter} was loaded again")
        except ApiError as error:
            finish = outcomes.refused(claim, error.status, error.code, str(error), error.body)
        except (EngineLostError, EngineStoppedError) as error:
            finish = await self._lost(claim, calls.gravest(error), calls)
        except EngineError as error:
            finish = self._refused(claim, error, calls)
        except OSError as error:  # a process that judges cannot be started
            finish = self.failed(claim, "worker_error", repr(error))
        return replace(finish, usage=calls.usage)

    async def _judged(self, claim: Claim, calls: _AttemptCalls) -> Finish:
        info = self._monitor.info
        previous = None
        if rejected := claim.previous:
            with suppress(ValueError):  # a reason of a newer worker
                reason = RejectionReason(rejected["reason"])
                previous = Previous(reason, rejected["detail"], rejected["artifact"], rejected["note"])
        verifier, doubts = None, NO_DOUBTS
        if info is not None and isinstance(claim.request, dict) and claim.request.get("verification"):
            verifier = verifier_of(info)
            measured = partial(self._store.measured_verifier, verifier)
            doubts = await retry_until_answered("the verifier's record", measured)
        context = context_of(info, previous, doubts)
        examples = () if context.plain else await self._voices.examples(claim)
        context = replace(context, examples=tuple(example.text for example in examples))
        judgement = await follow(
            PlannedJob(
                claim.kind,
                claim.request,
                context,
                self._settings.policy_of(claim.kind),
                self._settings.kv_budget_of(claim.kind),
                claim.source_key,
            ),
            RequestFactory(
                claim.key,
                claim.kind,
                claim.seed,
                claim.tenant,
                claim.priority,
                claim.deadline,
                booked=True,
                adapter=claim.adapter,
                can_budget=partial(self._can_budget, claim.kind, info),
            ),
            calls.submit,
            calls.log,
            advance=self._judges.advance,
            early_rejection=self._judges.early_rejection,
            before_step=calls.before_step,
            wait=calls.outputs,
            translate=calls.translated,
        )
        calls.check_adapter()
        text = calls.log.text
        if judgement.reason is RejectionReason.PROMPT_TOO_LONG and not text.strip():
            return outcomes.hopeless(claim, judgement.reason, judgement.detail)
        made = calls.provenance(judgement.version, examples)
        finish = outcomes.judged(claim, judgement, text, calls.usage, made, verifier and (verifier, doubts))
        return await self.compared(claim, replace(finish, answered_at=calls.answered_at))

    def _can_budget(self, kind: str, info: EngineInfo | None, tokens: int) -> bool:
        """Whether the engine can serve a kind's KV budget; if it cannot, one warning per session says why."""
        refusal = info.refusal_of_budget(tokens) if info is not None else ""
        if info is not None and refusal and (info.session_id, kind) not in self._warned:
            self._warned.add((info.session_id, kind))
            logger.warning("calls of the kind %s keep all KV on this engine: %s", kind, refusal)
        return not refusal

    async def _lost(self, claim: Claim, error: EngineError, calls: _AttemptCalls) -> Finish:
        """The outcome when the engine was stopped or died, or only the connection broke.

        If the engine named the members of its fatal step, only those are charged. If it died silently, its record
        clears the requests that it had not begun.
        """
        session_id, detail = calls.usage.engine_session_id, str(error)
        if isinstance(error, EngineStoppedError | UninvolvedError):
            self._monitor.await_new_session(session_id)
            return outcomes.released(claim, error.code, detail)
        if not isinstance(error, ConnectionLostError):
            self._monitor.await_new_session(session_id)
            return outcomes.engine_died(claim, detail)
        if not await self._monitor.outlived(session_id):
            if self._monitor.may_have_begun(session_id, calls.request_ids):
                return outcomes.engine_died(claim, detail)
            return outcomes.released(claim, UninvolvedError.code, detail)
        if claim.tries - claim.failures > MAX_FREE_ATTEMPTS:
            return self.failed(claim, "connection_lost", detail)
        return outcomes.released(claim, "connection_lost", detail)

    def _refused(self, claim: Claim, error: EngineError, calls: _AttemptCalls) -> Finish:
        """The outcome of a call that was refused or that failed."""
        if isinstance(
            error, UnknownAdapterError
        ):  # it was unloaded since the dispatch, or its alias was pointed elsewhere
            return replace(outcomes.released(claim, error.code, str(error)), delay_seconds=UNLOADED_SECONDS)
        if isinstance(error, REFUSALS):
            return outcomes.hopeless(claim, error.code, str(error))
        if isinstance(error, EngineNotAcceptingError):
            self._monitor.await_new_session(calls.usage.engine_session_id)
            return outcomes.released(claim, error.code)
        # An engine fault costs no attempt, up to as many times as the job has attempts.
        free = claim.tries - claim.failures
        if free > claim.max_attempts:
            return self.failed(claim, error.code, str(error))
        delay_seconds = self._retry.delay(free, random.random())  # noqa: S311 - jitter
        return replace(outcomes.released(claim, error.code, str(error)), delay_seconds=delay_seconds)


class _AttemptCalls:
    """The calls of one attempt, all to one engine session. `before_step`, `submit` and `outputs` are for `follow`."""

    def __init__(self, claim: Claim, monitor: EngineMonitor, live: LivePublisher) -> None:
        self._claim = claim
        self._monitor = monitor
        self._live = live
        self._engine: EngineInfo | None = None
        self._step_begun = False  # a call of the current step was sent
        self.log = CallLog()
        self.answered_at: float | None = None  # monotonic: when the outputs of the last step arrived

    @property
    def usage(self) -> AttemptUsage:
        """The usage of all ended calls, whatever their end."""
        return AttemptUsage(
            UUID(self._engine.session_id) if self._engine else None,
            self.log.usage,
            self.log.verification_usage.compute_seconds,
            self.log.saved_tokens,
            max(1, self._engine.num_gpus) if self._engine else 1,
        )

    @property
    def request_ids(self) -> tuple[str, ...]:
        """The engine's ids of the attempt's requests."""
        return tuple(f"{self._claim.key}.{number}" for number in range(len(self.log.sent)))

    def before_step(self) -> None:
        """Raise `BudgetSpentError` if the job may not use more, `NotSentError` if it may not run on this engine, or
        what `check_adapter` raises.
        """
        if self._claim.overdraws(self.log.usage.compute_seconds):
            raise BudgetSpentError
        if self._engine is None:
            # A quarantined job may run only on the engine that it was claimed for.
            if self._claim.engine_deaths and self._claim.session_id != self._monitor.session_id:
                raise NotSentError("the engine was restarted after the claim")
            self._engine = self._monitor.info
        self.check_adapter()
        self._step_begun = False

    def check_adapter(self) -> None:
        """Raise `AdapterChangedError` if the calls that have ended used different weights."""
        if len(self.log.usage.adapters) > 1:
            raise AdapterChangedError

    async def submit(self, request: GenerationRequest) -> Generation:
        """Send a call, unless the engine's session has changed. Raises `NotSentError`, `EngineError`."""
        if self._engine is None or self._monitor.session_id != UUID(self._engine.session_id):
            raise NotSentError("the engine was restarted after the last call")
        try:
            generation = await self._monitor.submit(request)
        except EngineLostError as error:
            if self._step_begun:
                raise
            raise NotSentError(str(error)) from error
        self._step_begun = True
        return generation

    async def translated(self, body: ApiBody, tenant: str) -> Translated:
        """A call that is a body of OpenAI's API. Raises `ApiError`, `NotSentError`, `EngineError`."""
        if self._engine is None:
            raise NotSentError("no engine has answered yet")
        return await translated(body, tenant, self._engine, self._monitor.vocabulary, self._claim.adapter)

    async def outputs(self, calls: Sequence[RunningCall]) -> Outputs:
        """Wait for the outputs of a step, the first of which may be watched."""
        with self._live.offered(self._claim, calls[0], self.log.text):
            outputs = await side_by_side(calls)
        crash_point("after_engine")
        self.answered_at = time.monotonic()
        return outputs

    def gravest(self, error: EngineError) -> EngineError:
        """The error of a call that was involved in the engine's death, if there is one; otherwise this one."""
        if not isinstance(error, UninvolvedError):
            return error
        others = (call.error for call in self.log.sent if isinstance(call.error, EngineLostError))
        return next((other for other in others if not isinstance(other, UninvolvedError)), error)

    def provenance(self, version: str, examples: Sequence[Example]) -> dict[str, Any]:
        """How the outputs were made: by which prompts, examples and model, with which seeds; what each step took."""
        engine = {name: getattr(self._engine, name, None) for name in ("model", "device", "dtype")}
        if self._claim.adapter:
            engine["adapter"] = {"name": self._claim.adapter, "digest": "".join(self.log.usage.adapters)}
        steps = []
        for name in dict.fromkeys(call.call.step for call in self.log.sent):
            calls = [call for call in self.log.sent if call.call.step == name]
            used = total(call.usage for call in calls)
            budget = calls[0].kv_budget
            steps.append(
                {
                    "step": name,
                    "calls": len(calls),
                    "seeds": [call.sampling.seed for call in calls],
                    "sampling": asdict(calls[0].sampling if calls[0].call.api else calls[0].call.sampling),
                    "template_options": dict(calls[0].call.template_options),
                    **({} if budget is None else {"kv_budget": budget}),
                    "prompt_tokens": used.prompt_tokens,
                    "cached_tokens": used.cached_tokens,
                    "output_tokens": used.output_tokens,
                    "compute_seconds": used.compute_seconds,
                }
            )
        shown = {"examples": [str(example.job_id) for example in examples]} if examples else {}
        brief = (self._claim.request.get("brief") or {}) if isinstance(self._claim.request, dict) else {}
        named = {"brief": {"name": brief["name"], "version": brief["version"]}} if brief.get("name") else {}
        return {"version": version, **named, **shown, **engine, "seed": self._claim.seed, "steps": steps}
