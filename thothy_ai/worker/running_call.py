"""`RunningCall`: one call in flight: its text as it is written, its end, and what it used."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING

from thothy_ai.engine.api import FinishReason
from thothy_ai.engine.api.errors import EngineError, PromptTooLongError
from thothy_ai.jobs import Call, Early, End, Output, Rejection, RejectionReason
from thothy_ai.plans.generations import TOO_LONG, output_of
from thothy_ai.worker.finish import NO_ENGINE_USAGE

if TYPE_CHECKING:  # the client's module is only needed where a client is made
    from thothy_ai.engine.api import Usage
    from thothy_ai.engine.serving.client import Generation

ENOUGH_BYTES = 120  # of an output to tell its language
ABORT_SECONDS = 2.0  # for an aborted generation to report its usage
GROWTH = 1.4  # by which a text is longer when it is looked at again
# Why an unfinished output is stopped: its text, its locale (None: its language is not to be told), its early checks.
EarlyRejection = Callable[[str, str | None, Early | None], Awaitable[Rejection | None]]
_EARLY_ENDS = frozenset({End.REPETITION, End.WRONG_LANGUAGE, End.REJECTED})


class EngineAbortedError(Exception):
    """The engine itself ended a call early."""


class RunningCall:
    """A call and its generation."""

    def __init__(self, call: Call, seed: int, generation: Generation) -> None:
        self.call = call
        self.seed = seed
        self.end: End | None = None  # None: it was cut off
        self.error: EngineError | None = None  # of one that was cut off, once it is aborted
        self._generation = generation
        self._stopped: Rejection | None = None
        self._written: int | None = None  # tokens of its first text, once it has ended

    @property
    def usage(self) -> Usage:
        """What it took until it ended, however it did."""
        return self._generation.usage or NO_ENGINE_USAGE

    @property
    def saved_tokens(self) -> int:
        """The rest of its budget, if it was stopped early."""
        early = self.end in _EARLY_ENDS
        sampling = self.call.sampling
        if self._written is not None:
            return max(0, sampling.max_tokens - self._written) if early else 0
        budget = sampling.max_tokens * (sampling.best_of or sampling.n)
        return max(0, budget - self.usage.output_tokens) if early else 0

    async def output(self, rejected: EarlyRejection) -> Output:
        """Wait for its end; stop it once it is certain to be rejected. Raises its `EngineError`."""
        watching = None
        if self.call.locale is not None or self.call.early is not None:
            watching = asyncio.create_task(self._watch(rejected))
            watching.add_done_callback(_mark_retrieved)
        try:
            output = await self._result()
        finally:
            if watching is not None:
                watching.cancel()
        self.end = output.end
        return output

    async def stream(self) -> AsyncIterator[str]:
        """The pieces of its first text from now on, the first with all so far, until it ends. For one reader only."""
        await self._generation.stream()
        async for delta in self._generation:
            if not delta.choice:
                yield delta.text

    async def abort(self) -> None:
        """End it early, and wait for its usage; no effect if it has ended."""
        try:
            async with asyncio.timeout(ABORT_SECONDS):
                await self._generation.abort()
                await self._generation.result()
        except EngineError as error:
            self.error = error
        except TimeoutError:
            pass

    async def _result(self) -> Output:
        try:
            result = await self._generation.result()
        except PromptTooLongError:
            return TOO_LONG
        if result.finish_reason is not FinishReason.ABORTED:
            self._written = len(result.token_ids)
            return output_of(result)
        if self._stopped is not None:
            foreign = self._stopped.reason is RejectionReason.WRONG_LANGUAGE
            return Output(result.text, End.WRONG_LANGUAGE if foreign else End.REJECTED, rejection=self._stopped)
        raise EngineAbortedError

    async def _watch(self, rejected: EarlyRejection) -> None:
        """Look at the text at each report. Its language is told once, at the first."""
        text = await self._generation.early_text()
        enough = len(text.encode("utf-8", "surrogatepass")) >= ENOUGH_BYTES
        locale, early = self.call.locale if enough else None, self.call.early
        while self._generation.usage is None and (locale is not None or early is not None):
            self._stopped = await rejected(text, locale, early)
            if self._stopped is not None:
                await self._generation.abort()
            if self._stopped is not None or early is None:
                return
            locale, text = None, await self._generation.text_beyond(int(len(text) * GROWTH))


def _mark_retrieved(watching: asyncio.Task[None]) -> None:
    """An error of the engine's is that of the output, too."""
    if not watching.cancelled():
        watching.exception()
