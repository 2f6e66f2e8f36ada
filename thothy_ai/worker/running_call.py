"""`RunningCall`: one call in flight: its text so far, for all who read along, its end, and what it used."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
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
    """Reads the generation's deltas once, for all that follow them."""

    def __init__(self, call: Call, seed: int, generation: Generation) -> None:
        self.call = call
        self.seed = seed
        self.end: End | None = None  # None: it was cut off
        self._generation = generation
        self._text = ""
        self._ended = False
        self._grown = asyncio.Event()
        self._reading: asyncio.Task[None] | None = None
        self._stopped = False

    @property
    def usage(self) -> Usage:
        """What it took until it ended, however it did."""
        return self._generation.usage or NO_ENGINE_USAGE

    @property
    def saved_tokens(self) -> int:
        """The rest of its budget, if it was stopped early."""
        early = self.end in {End.REPETITION, End.WRONG_LANGUAGE}
        return max(0, self.call.sampling.max_tokens - self.usage.output_tokens) if early else 0

    async def output(self, wrong_language: WrongLanguage) -> Output:
        """Wait for its end; stop it if its language turns out to be wrong. Raises its `EngineError`."""
        watching = None
        if self.call.locale is not None:
            watching = asyncio.create_task(self._watch_language(self.call.locale, wrong_language))
        try:
            output = await self._result()
        finally:
            if watching is not None:
                watching.cancel()
        self.end = output.end
        return output

    async def follow(self, *, stream: bool = False) -> AsyncIterator[str]:
        """All text so far, each time that there is more, until the end; with `stream`, as soon as there is more."""
        if self._reading is None:
            self._reading = asyncio.create_task(self._read())
        if stream:
            await self._generation.stream()
        seen = ""
        while not self._ended or seen != self._text:
            if seen == self._text:
                await self._grown.wait()
            else:
                seen = self._text
                yield seen

    async def abort(self) -> None:
        """End it early, and wait for its usage; no effect if it has ended."""
        with suppress(EngineError, TimeoutError):
            async with asyncio.timeout(ABORT_SECONDS):
                await self._generation.abort()
                await self._generation.result()

    async def _result(self) -> Output:
        try:
            result = await self._generation.result()
        except PromptTooLongError:
            return TOO_LONG
        if result.finish_reason is not FinishReason.ABORTED:
            return output_of(result)
        if self._stopped:
            return Output(result.text, End.WRONG_LANGUAGE)
        raise EngineAbortedError

    async def _watch_language(self, locale: str, wrong_language: WrongLanguage) -> None:
        """Once: as soon as there is enough of the text. It comes in an early delta, or piece by piece to a watcher."""
        async for text in self.follow():
            if len(text.encode("utf-8", "surrogatepass")) >= ENOUGH_BYTES:
                if await wrong_language(text, locale):
                    self._stopped = True
                    await self._generation.abort()
                return

    async def _read(self) -> None:
        """Until the generation ends, however it does: `output` deals with that."""
        try:
            with suppress(EngineError):
                async for delta in self._generation:
                    again = self._text and delta.text.startswith(self._text)  # a request to stream starts anew
                    self._text = delta.text if again else self._text + delta.text
                    self._grow()
        finally:
            self._ended = True
            self._grow()

    def _grow(self) -> None:
        self._grown.set()
        self._grown = asyncio.Event()
