"""`AttemptCalls`: sends a plan's calls to the engine, side by side, and keeps what they were and what they used."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import Any
from uuid import UUID

from thothy_ai.crash_points import crash_point
from thothy_ai.engine.api import EngineInfo
from thothy_ai.engine.api.errors import EngineError, EngineLostError, UninvolvedError
from thothy_ai.jobs import Call
from thothy_ai.jobs.api.plan import Calls, Outputs
from thothy_ai.plans.generations import Asker, call_seed
from thothy_ai.worker.claims import Claim
from thothy_ai.worker.engine_monitor import EngineMonitor
from thothy_ai.worker.finish import Usage, total
from thothy_ai.worker.live import LiveText
from thothy_ai.worker.running_call import EarlyRejection, RunningCall

REVIEW = "review"  # the step of a plan in which the model judges an artifact


class NotSentError(Exception):
    """The engine was lost before a step's first call could be sent: none is in flight."""


class AttemptCalls:
    """The calls of one attempt, all to one engine session."""

    def __init__(self, monitor: EngineMonitor, live: LiveText, early_rejection: EarlyRejection, claim: Claim) -> None:
        self._monitor = monitor
        self._live = live
        self._early_rejection = early_rejection
        self._claim = claim
        self._asker = Asker(claim.key, claim.kind, claim.seed, claim.tenant, claim.priority, claim.deadline)
        self._engine: EngineInfo | None = None
        self._sent: list[RunningCall] = []
        self._texts: list[str] = []

    @property
    def usage(self) -> Usage:
        """What all calls have used that have ended, however they did."""
        return Usage(
            UUID(self._engine.session_id) if self._engine else None,
            total(call.usage for call in self._sent),
            sum(call.usage.compute_seconds for call in self._sent if call.call.step == REVIEW),
            sum(call.saved_tokens for call in self._sent),
        )

    @property
    def request_ids(self) -> tuple[str, ...]:
        """The ids by which the engine knows them."""
        return tuple(f"{self._claim.key}.{number}" for number in range(len(self._sent)))

    @property
    def text(self) -> str:
        """All outputs of the steps that have ended, each on lines of its own."""
        return "\n".join(self._texts)

    def provenance(self, version: str) -> dict[str, Any]:
        """How the outputs were made: by which prompts and model, with which seeds; and what each step took."""
        engine = {name: getattr(self._engine, name, None) for name in ("model", "device", "dtype")}
        steps = [_step(name, self._sent) for name in dict.fromkeys(call.call.step for call in self._sent)]
        return {"version": version, **engine, "seed": self._claim.seed, "steps": steps}

    async def run(self, calls: Calls) -> Outputs:
        """The outputs of one step. If one fails, or the task is cancelled, all are aborted, and what they used counts.

        Raises `NotSentError`, `EngineAbortedError`, or the first call's `EngineError`.
        """
        first = len(self._sent)
        try:
            for call in calls:
                self._sent.append(await self._submit(call, first))
            step = self._sent[first:]
            with self._live.offered(self._claim, step[0], self.text):
                outputs = tuple(await asyncio.gather(*(call.output(self._early_rejection) for call in step)))
        except BaseException as error:
            await asyncio.gather(*(call.abort() for call in self._sent[first:]))
            if isinstance(error, UninvolvedError):
                raise self._gravest(error, first) from None
            raise
        crash_point("after_engine")
        self._texts += [output.text for output in outputs]
        return outputs

    def _check_quarantine(self) -> None:
        """A quarantined job may run only on the engine that it was claimed for."""
        if self._claim.engine_deaths and self._claim.session_id != self._monitor.session_id:
            raise NotSentError("the engine was restarted after the claim")

    def _gravest(self, error: UninvolvedError, first: int) -> EngineError:
        """The error of a call that was involved in the engine's death, if there is one in the step."""
        others = (call.error for call in self._sent[first:] if isinstance(call.error, EngineLostError))
        return next((other for other in others if not isinstance(other, UninvolvedError)), error)

    async def _submit(self, call: Call, first: int) -> RunningCall:
        """Send the next call of the step whose first call has this number."""
        number = len(self._sent)
        if self._engine is None:
            self._check_quarantine()
            self._engine = self._monitor.info
        elif self._monitor.session_id != UUID(self._engine.session_id):
            raise NotSentError("the engine was restarted after the last call")
        try:
            generation = await self._monitor.submit(self._asker.request(call, number))
        except EngineLostError as error:
            if number > first:
                raise
            raise NotSentError(str(error)) from error
        return RunningCall(call, call_seed(self._claim.seed, number), generation)


def _step(name: str, sent: list[RunningCall]) -> dict[str, Any]:
    calls = [call for call in sent if call.call.step == name]
    used = total(call.usage for call in calls)
    return {
        "step": name,
        "calls": len(calls),
        "seeds": [call.seed for call in calls],
        "sampling": asdict(calls[0].call.sampling),
        "template_options": dict(calls[0].call.template_options),
        "prompt_tokens": used.prompt_tokens,
        "cached_tokens": used.cached_tokens,
        "output_tokens": used.output_tokens,
        "compute_seconds": used.compute_seconds,
    }
