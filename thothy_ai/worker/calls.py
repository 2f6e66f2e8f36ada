"""`AttemptCalls`: sends a plan's calls to the engine, side by side, and adds up what they use."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING
from uuid import UUID

from thothy_ai.crash_points import crash_point
from thothy_ai.engine.api import FinishReason
from thothy_ai.engine.api import Usage as EngineUsage
from thothy_ai.engine.errors import EngineError, EngineLostError, PromptTooLongError
from thothy_ai.jobs import Call, Output
from thothy_ai.jobs.plan import Calls, Outputs
from thothy_ai.worker.claims import Claim
from thothy_ai.worker.engine_monitor import EngineMonitor
from thothy_ai.worker.finish import Usage
from thothy_ai.worker.generations import TOO_LONG, Asker, output_of
from thothy_ai.worker.live import LiveText

if TYPE_CHECKING:  # the client's module is only needed where a client is made
    from thothy_ai.engine.client import Generation

ABORT_SECONDS = 2.0  # for an aborted generation to report its usage


class NotSentError(Exception):
    """The engine was lost before a step's first call could be sent: none is in flight."""


class EngineAbortedError(Exception):
    """The engine itself ended a call early."""


class AttemptCalls:
    """The calls of one attempt, all to one engine session; keeps their usage and their outputs' texts."""

    def __init__(self, monitor: EngineMonitor, live: LiveText, claim: Claim) -> None:
        self._monitor = monitor
        self._live = live
        self._claim = claim
        self._asker = Asker(claim.key, claim.kind, claim.seed, claim.tenant, claim.priority, claim.deadline)
        self._session_id: UUID | None = None
        self._used: list[EngineUsage] = []
        self._sent = 0
        self._texts: list[str] = []

    @property
    def usage(self) -> Usage:
        """What all calls have used that have ended, however they did."""
        return Usage.total(self._used, self._session_id)

    @property
    def text(self) -> str:
        """All outputs of the steps that have ended, each on lines of its own."""
        return "\n".join(self._texts)

    async def run(self, calls: Calls) -> Outputs:
        """The outputs of one step. If one fails, or the task is cancelled, all are aborted, and what they used counts.

        Raises `NotSentError`, `EngineAbortedError`, or the first call's `EngineError`.
        """
        generations: list[Generation] = []
        try:
            for call in calls:
                generations.append(await self._submit(call, in_flight=bool(generations)))
            with self._live.offered(self._claim, generations[0], self.text):
                outputs = tuple(await asyncio.gather(*map(_output, generations)))
        except BaseException:
            await asyncio.gather(*map(_abort, generations))
            raise
        finally:
            self._used += [generation.usage for generation in generations if generation.usage is not None]
        crash_point("after_engine")
        self._texts += [output.text for output in outputs]
        return outputs

    async def _submit(self, call: Call, *, in_flight: bool) -> Generation:
        request = self._asker.request(call, self._sent)
        if self._sent == 0:
            self._session_id = self._monitor.session_id
        elif self._session_id != self._monitor.session_id:
            raise NotSentError("the engine was started anew since the last call")
        self._sent += 1
        try:
            return await self._monitor.submit(request)
        except EngineLostError as error:
            if in_flight:
                raise
            raise NotSentError(str(error)) from error


async def _output(generation: Generation) -> Output:
    try:
        result = await generation.result()
    except PromptTooLongError:
        return TOO_LONG
    if result.finish_reason is FinishReason.ABORTED:
        raise EngineAbortedError
    return output_of(result)


async def _abort(generation: Generation) -> None:
    """End it early, and wait for its usage; no effect if it has ended."""
    with suppress(EngineError, TimeoutError):
        async with asyncio.timeout(ABORT_SECONDS):
            await generation.abort()
            await generation.result()
