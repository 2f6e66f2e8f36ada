"""`RunningCall`: one call in flight: its text as it is written, its end, and what it used."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING

from thothy_ai.engine.api import FinishReason
from thothy_ai.engine.errors import EngineError, PromptTooLongError
from thothy_ai.jobs import Call, End, Output
from thothy_ai.worker.finish import NO_ENGINE_USAGE
from thothy_ai.worker.generations import TOO_LONG, output_of

if TYPE_CHECKING:  # the client's module is only needed where a client is made
    from thothy_ai.engine.api import Usage
    from thothy_ai.engine.client import Generation

ENOUGH_BYTES = 120  # of an output to tell its language
ABORT_SECONDS = 2.0  # for an aborted generation to report its usage

WrongLanguage = Callable[[str, str], Awaitable[bool]]  # whether a text, so far, is in another language than a locale's


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
        self._stopped = False
        self._written: int | None = None  # tokens of its first text, once it has ended

    @property
    def usage(self) -> Usage:
        """What it took until it ended, however it did."""
        return self._generation.usage or NO_ENGINE_USAGE

    @property
    def saved_tokens(self) -> int:
        """The rest of its budget, if it was stopped early."""
        early = self.end in {End.REPETITION, End.WRONG_LANGUAGE}
        sampling = self.call.sampling
        if self._written is not None:
            return max(0, sampling.max_tokens - self._written) if early else 0
        budget = sampling.max_tokens * (sampling.best_of or sampling.n)
        return max(0, budget - self.usage.output_tokens) if early else 0

    async def output(self, wrong_language: WrongLanguage) -> Output:
        """Wait for its end; stop it if its language turns out to be wrong. Raises its `EngineError`."""
        watching = None
        if self.call.locale is not None:
            watching = asyncio.create_task(self._watch_language(self.call.locale, wrong_language))
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
        if self._stopped:
            return Output(result.text, End.WRONG_LANGUAGE)
        raise EngineAbortedError

    async def _watch_language(self, locale: str, wrong_language: WrongLanguage) -> None:
        text = await self._generation.early_text()
        ended = self._generation.usage is not None
        if ended or len(text.encode("utf-8", "surrogatepass")) < ENOUGH_BYTES:
            return
        if await wrong_language(text, locale):
            self._stopped = True
            await self._generation.abort()


def _mark_retrieved(watching: asyncio.Task[None]) -> None:
    """An error of the engine's is that of the output, too."""
    if not watching.cancelled():
        watching.exception()
