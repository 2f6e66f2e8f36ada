"""`RunningCall`: one call in flight: its text as it is written, its early stop, its end, and its usage."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import fields, replace
from typing import TYPE_CHECKING

from thothy_ai.engine.api import FinishReason, GenerationRequest, GenerationResult, Usage
from thothy_ai.engine.api.errors import (
    EngineError,
    GrammarError,
    InvalidRequestError,
    PromptTooLongError,
    UnknownAdapterError,
)
from thothy_ai.errors import ThothyError
from thothy_ai.jobs import Call, Early, End, Output, Rejection, RejectionReason
from thothy_ai.plans.requests import TOO_LONG, Translated, output_of

if TYPE_CHECKING:  # at run time, only code that makes a client needs its module
    from thothy_ai.engine.serving.client import Generation

ENOUGH_BYTES = 120  # of an output, to recognise its language
ABORT_SECONDS = 2.0  # for an aborted generation to report its usage
GROWTH = 1.4  # the factor by which a text has to grow before the next early check
NOTHING_USED = Usage(prompt_tokens=0, cached_tokens=0, output_tokens=0, compute_seconds=0.0)
# Why to stop an unfinished output, from its text, its locale (None: the language is not checked) and its early checks.
EarlyRejection = Callable[[str, str | None, Early | None], Awaitable[Rejection | None]]
REFUSALS = (PromptTooLongError, GrammarError, InvalidRequestError)  # any engine would refuse the request
_EARLY_ENDS = frozenset({End.REPETITION, End.WRONG_LANGUAGE, End.REJECTED})


class EngineAbortedError(ThothyError):
    """The engine itself ended a call early."""


class RunningCall:
    """A call and its generation. With `early_rejection`, the call is stopped once its rejection is certain.
    `translated` is set for a call to OpenAI's API.
    """

    def __init__(
        self,
        call: Call,
        request: GenerationRequest,
        generation: Generation,
        early_rejection: EarlyRejection | None = None,
        translated: Translated | None = None,
    ) -> None:
        self.call = call
        self.sampling, self.kv_budget = request.sampling, request.kv_budget
        self.end: End | None = None  # None: the call was cut off
        self.result: GenerationResult | None = None  # set if the generation was not stopped
        self.error: EngineError | None = None  # why there is no result: the prompt was too long, or the engine was lost
        self._generation = generation
        self._early_rejection = early_rejection
        self._translated = translated
        self._stopped: Rejection | None = None

    @property
    def usage(self) -> Usage:
        """The call's usage until it ended, however it ended."""
        return self._generation.usage or NOTHING_USED

    @property
    def saved_tokens(self) -> int:
        """The unused tokens of its budget if it was stopped early, otherwise 0."""
        if self.end not in _EARLY_ENDS:
            return 0
        sampling = self.call.sampling
        if self.result is not None:
            return max(0, sampling.max_tokens - len(self.result.token_ids))
        return max(0, sampling.max_tokens * (sampling.best_of or sampling.n) - self.usage.output_tokens)

    async def output(self) -> Output:
        """Wait for the call's end. Raises its `EngineError`, `EngineAbortedError`, and the refusals of an API."""
        watching = None
        if self._early_rejection is not None and (self.call.locale is not None or self.call.early is not None):
            watching = asyncio.create_task(self._watch(self._early_rejection))
            # An engine's error is raised with the output as well, so that it counts as retrieved here.
            watching.add_done_callback(lambda watched: watched.cancelled() or watched.exception())
        try:
            result = await self._generation.result()
        except UnknownAdapterError as error:  # another engine may have it
            self.error = error
            raise
        except REFUSALS as error:
            self.error = error
            if self._translated is not None:
                raise self._translated.refusal(error) from error
            if not isinstance(error, PromptTooLongError):
                raise
            output = TOO_LONG
        else:
            output = self._output(result)
        finally:
            if watching is not None:
                watching.cancel()
        self.end = output.end
        return output

    def _output(self, result: GenerationResult) -> Output:
        if result.finish_reason is not FinishReason.ABORTED:
            self.result = result
            answer = self._translated.answer(result) if self._translated is not None else None
            return replace(output_of(result), answer=answer)
        if self._stopped is None:
            raise EngineAbortedError("the engine ended a call early")
        foreign = self._stopped.reason is RejectionReason.WRONG_LANGUAGE
        return Output(result.text, End.WRONG_LANGUAGE if foreign else End.REJECTED, rejection=self._stopped)

    async def _watch(self, early_rejection: EarlyRejection) -> None:
        """Check the text at each report of the engine; its language only at the first."""
        text = await self._generation.early_text()
        enough = len(text.encode("utf-8", "surrogatepass")) >= ENOUGH_BYTES
        locale, early = self.call.locale if enough else None, self.call.early
        while self._generation.usage is None and (locale is not None or early is not None):
            self._stopped = await early_rejection(text, locale, early)
            if self._stopped is not None:
                await self._generation.abort()
            if self._stopped is not None or early is None:
                return
            locale, text = None, await self._generation.text_beyond(int(len(text) * GROWTH))

    async def stream(self) -> None:
        """Have the engine send the text in pieces from now on; the first piece is all the text so far."""
        await self._generation.stream()

    async def texts(self) -> AsyncIterator[str]:
        """The pieces of the first text, as the engine sends them, until the call ends. For one reader only."""
        async for text in first_text(self._generation):
            yield text

    async def abort(self) -> None:
        """End the call early and wait for its usage. No effect if it has ended."""
        self.error = await abort(self._generation)


async def first_text(generation: Generation) -> AsyncIterator[str]:
    """The pieces of a generation's first text, until all its texts have ended. Raises its `EngineError`."""
    async for delta in generation:
        if not delta.choice:
            yield delta.text


async def abort(generation: Generation) -> EngineError | None:
    """End a generation early, and wait for its usage. Returns the error that it failed with, if it did."""
    try:
        async with asyncio.timeout(ABORT_SECONDS):
            await generation.abort()
            await generation.result()
    except EngineError as error:
        return error
    except TimeoutError:
        pass
    return None


def total(used: Iterable[Usage]) -> Usage:
    """The usage of several generations together."""
    parts = list(used)
    numbers = [each.name for each in fields(Usage) if each.name != "adapters"]
    sums = {name: sum(getattr(part, name) for part in parts) for name in numbers}
    return Usage(**sums, adapters=tuple(sorted({digest for part in parts for digest in part.adapters})))
