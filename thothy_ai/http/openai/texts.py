"""From a generation request to its answer, whole or as events: a place at an engine, generations, and the sending.

Headers wait for the first text, so that an engine's refusal sets the status; a later error is sent as an event.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Protocol

from thothy_ai.engine.api import Delta, EngineInfo, FinishReason, GenerationRequest, GenerationResult
from thothy_ai.engine.api.errors import EngineError, UnknownAdapterError
from thothy_ai.engine.serving.client import Generation
from thothy_ai.http import metrics
from thothy_ai.http.accounts import Account
from thothy_ai.http.asgi import Exchange
from thothy_ai.http.engines import Fleet, TakenPlace
from thothy_ai.http.errors import RETRY_SECONDS, ApiError, Fields, of_engine
from thothy_ai.http.openai.events import PING

PING_SECONDS = 15.0  # of silence before a ping: proxies end idle connections
_MAX_TRIES = 3
_TICK_SECONDS = 0.01  # by which clocks can differ
Numbered = tuple[int, Sequence[Delta]]  # a prompt's index, and its new text


class Wanted(Protocol):
    """A request for text, and the form of its answer."""

    model: str
    beginning: str  # the prompt's beginning
    streams: bool
    wants_tokens: bool  # the bytes of tokens, for log-probabilities
    prompts: int
    sequences: int  # that run in the engine for each prompt
    fields: Fields
    done: bytes  # the last event

    def requests(self, info: EngineInfo, vocabulary: Sequence[bytes]) -> Sequence[GenerationRequest]:
        """The engine's requests, one per prompt; `ApiError` or `InvalidRequestError` if the engine cannot honour a
        field.
        """

    def whole(self, results: Sequence[GenerationResult]) -> object:
        """The whole answer, from the results of all prompts."""

    def opening(self) -> bytes:
        """The events before any text."""

    def written(self, prompt: int, deltas: Sequence[Delta]) -> bytes:
        """The events of new text of this prompt."""

    def closing(self, results: Sequence[GenerationResult]) -> bytes:
        """The events after all text."""

    def failed(self, error: ApiError) -> bytes:
        """The event of an error after the opening; it is the last event."""


async def write(exchange: Exchange, fleet: Fleet, wanted: Wanted, account: Account) -> None:
    """Run the generations and send the answer. Raises `ApiError` for `exchange` to report. If the client leaves, its
    generations are aborted.
    """
    answer = _Answer(exchange, wanted, account)
    watching = asyncio.create_task(answer.watch())
    writing = asyncio.create_task(answer.write(fleet))
    try:
        await asyncio.wait((watching, writing), return_when=asyncio.FIRST_COMPLETED)
        if not writing.done():  # the client has left
            metrics.ABANDONED.inc()
            writing.cancel()  # aborts submitted generations, and gives up a place or the wait for one
            await asyncio.wait((writing,))
        if not writing.cancelled():
            writing.result()
    finally:
        watching.cancel()
        writing.cancel()
        await asyncio.wait((watching, writing))  # sending has ended


class _Answer:
    """One answer while it is being generated and sent."""

    def __init__(self, exchange: Exchange, wanted: Wanted, account: Account) -> None:
        self._exchange, self._wanted, self._account = exchange, wanted, account
        self._generations: list[Generation] = []
        self._results: list[GenerationResult] = []
        self._begun = time.monotonic()
        self._sent_at = self._begun
        self._events = False  # whether the headers of an event stream were sent
        self._opened = False  # whether the events before any text were sent, which its first text or its end follows
        self._sending = False

    async def watch(self) -> None:
        """Wait until the client leaves; meanwhile, send pings in an idle stream."""
        while True:
            idle = time.monotonic() - self._sent_at
            try:
                async with asyncio.timeout(max(0.0, PING_SECONDS - idle) + _TICK_SECONDS):
                    return await self._exchange.left()
            except TimeoutError:
                if self._sending:  # the client does not read
                    return None
                if self._wanted.streams and time.monotonic() - self._sent_at >= PING_SECONDS:
                    await self._send(PING)
                elif not self._wanted.streams:
                    self._sent_at = time.monotonic()

    async def write(self, fleet: Fleet) -> None:
        """Wait for a place, then generate and send the answer. If the engine has unloaded the adapter since the fleet's
        last look, try another engine.
        """
        tries = 1
        while True:
            try:
                return await self._write(fleet)
            except UnknownAdapterError as error:
                if self._opened or tries == _MAX_TRIES:
                    raise of_engine(error, self._wanted.fields) from error
            tries += 1
            await fleet.look()

    async def _write(self, fleet: Fleet) -> None:
        wanted, self._generations, self._results = self._wanted, [], []
        async with fleet.place(wanted.model, wanted.beginning, wanted.sequences, wanted.prompts) as place:
            try:
                async with aclosing(self._portions(place)) as portions:
                    if wanted.streams:
                        await self._stream(portions)
                    else:
                        async for _ in portions:
                            pass
                        await self._exchange.answer(200, wanted.whole(self._results))
            except UnknownAdapterError:  # another engine may have the adapter
                raise
            except EngineError as error:
                raise of_engine(error, wanted.fields) from error
            finally:
                for generation in self._generations:  # one of several prompts may have failed
                    await generation.abort()

    async def _portions(self, place: TakenPlace) -> AsyncGenerator[Sequence[Generation]]:
        """The generations of all prompts, in portions as large as the place allows, one portion after the other."""
        client, at_once = place.engine.client, place.taken // self._wanted.sequences
        info = await client.info()
        vocabulary = await place.engine.token_bytes() if self._wanted.wants_tokens else ()
        requests = self._wanted.requests(info, vocabulary)
        for first in range(0, len(requests), at_once):
            for request in requests[first : first + at_once]:
                self._generations.append(
                    await client.submit(replace(request, adapter=place.adapter) if place.adapter else request)
                )
                self._account.follow(info, self._generations[-1], place.adapter)
            yield self._generations[first:]
            results = [await generation.result() for generation in self._generations[first:]]
            if any(choice.finish_reason is FinishReason.ABORTED for result in results for choice in result.choices):
                says = "the engine gave the text up before its end"
                raise ApiError(503, says, code="engine_unavailable", retry_after=RETRY_SECONDS)
            self._results += results

    async def _stream(self, portions: AsyncGenerator[Sequence[Generation]]) -> None:
        async for portion in portions:
            first = len(self._results)
            async with aclosing(_merged(portion) if len(portion) > 1 else _numbered(0, portion[0])) as batches:
                async for number, deltas in batches:
                    if not self._opened:
                        metrics.FIRST_TEXT.observe(time.monotonic() - self._begun)
                    await self._send(self._opening() + self._wanted.written(first + number, deltas))
        await self._send(self._opening() + self._wanted.closing(self._results) + self._wanted.done)
        await self._exchange.end()

    def _opening(self) -> bytes:
        """The events before any text, once, when it is known which engine writes the text."""
        opened, self._opened = self._opened, True
        return b"" if opened else self._wanted.opening()

    async def _send(self, data: bytes) -> None:
        if not self._events:
            self._events = True
            await self._exchange.begin_events(self._wanted.failed)
        self._sent_at = time.monotonic()
        self._sending = True
        await self._exchange.send(data)
        self._sending = False


async def _numbered(number: int, generation: Generation) -> AsyncGenerator[Numbered]:
    async for deltas in generation.batches():
        yield number, deltas


async def _merged(generations: Sequence[Generation]) -> AsyncGenerator[Numbered]:
    """The batches of several generations, as they arrive. Raises the first error of any of them."""
    arrived: asyncio.Queue[Numbered | BaseException | None] = asyncio.Queue()

    async def forward(number: int, generation: Generation) -> None:
        try:
            async for batch in _numbered(number, generation):
                arrived.put_nowait(batch)
        except Exception as error:  # noqa: BLE001  it is raised where the batches are read
            arrived.put_nowait(error)
        else:
            arrived.put_nowait(None)

    tasks = [asyncio.create_task(forward(number, each)) for number, each in enumerate(generations)]
    try:
        unended = len(tasks)
        while unended:
            match await arrived.get():
                case None:
                    unended -= 1
                case BaseException() as error:
                    raise error
                case batch:
                    yield batch
    finally:
        for task in tasks:
            task.cancel()
