"""One request at a time to an engine, outside the queue: the running engine, or one that is started for it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import typer

from thothy_ai.cli.shell import find_model
from thothy_ai.cli.views.times import spell
from thothy_ai.engine.api import EngineInfo, GenerationRequest, GenerationResult, Usage
from thothy_ai.engine.api.errors import EngineError, EngineLostError, PromptTooLongError
from thothy_ai.jobs.api.plan import Output
from thothy_ai.plans.generations import TOO_LONG, output_of
from thothy_ai.worker.finish import NO_ENGINE_USAGE

if TYPE_CHECKING:
    from thothy_ai.embedded.endpoint import Endpoint
    from thothy_ai.engine.serving.client import EngineClient, Generation
    from thothy_ai.settings import Settings

ANSWER_SECONDS = 10.0
ABORT_SECONDS = 2.0


class Screen(Protocol):
    """Shows outputs as they come."""

    def output(self) -> None:
        """An output begins."""

    def text(self, text: str) -> None:
        """A piece of it."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of a request, `seconds` after its step began; of one that is too long, the engine's error."""

    output: Output
    result: GenerationResult | None
    seconds: float
    error: PromptTooLongError | None = None

    @property
    def usage(self) -> Usage:
        """What it took; nothing, if it was refused."""
        return self.result.usage if self.result is not None else NO_ENGINE_USAGE


@contextmanager
def engine_for(settings: Settings, model: Path | None, rows: int = 8) -> Iterator[Endpoint]:
    """Where the running engine is. If none is configured, or a model is given, one is started and stopped again.

    `rows` is the most requests that one started here runs at once.
    """
    from thothy_ai.embedded.endpoint import Endpoint
    from thothy_ai.embedded.engine import temporary_engine

    if model is None and settings.engine_url is not None:
        yield Endpoint(settings.engine_url, settings.reveal_engine_token())
        return
    path = find_model(settings, model)
    why = "No engine is running: s" if model is None else "S"
    typer.echo(f"{why}tarting one with {path.name} …", err=True)
    began = time.monotonic()
    with temporary_engine(settings, path, rows) as endpoint:
        typer.echo(f"Ready after {spell(time.monotonic() - began)}; it will be stopped afterwards.", err=True)
        yield endpoint


@asynccontextmanager
async def connected(endpoint: Endpoint) -> AsyncIterator[tuple[EngineClient, EngineInfo]]:
    """A client of this engine, and what the engine is. Raises `EngineLostError`."""
    from thothy_ai.admin.engines import silence_client
    from thothy_ai.engine.serving.client import connect

    silence_client()
    client = connect(endpoint.url, endpoint.token)
    try:
        yield client, await _info(client, endpoint.url)
    finally:
        await client.close()


async def ask(client: EngineClient, requests: Sequence[GenerationRequest], screen: Screen) -> tuple[Answer, ...]:
    """Submit requests that stream, and show their texts, one after the other. If this ends early, all are aborted."""
    began = time.monotonic()
    generations: list[Generation] = []
    try:
        generations += [await client.submit(request) for request in requests]
        return tuple([await _answer(generation, screen, began) for generation in generations])
    except BaseException:
        await asyncio.gather(*map(_abort, generations))
        raise


async def _answer(generation: Generation, screen: Screen, began: float) -> Answer:
    screen.output()
    try:
        async for delta in generation:
            if not delta.choice:
                screen.text(delta.text)
        result = await generation.result()
        for other in result.others:
            screen.output()
            screen.text(other.text)
        return Answer(output_of(result), result, time.monotonic() - began)
    except PromptTooLongError as error:
        return Answer(TOO_LONG, None, time.monotonic() - began, error)


async def _abort(generation: Generation) -> None:
    with suppress(EngineError, TimeoutError):
        async with asyncio.timeout(ABORT_SECONDS):
            await generation.abort()
            await generation.result()


async def _info(client: EngineClient, url: str) -> EngineInfo:
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            await client.start()
            return await client.info()
    except (EngineLostError, TimeoutError) as error:
        why = str(error).removeprefix(f"not connected to the engine at {url}: ") or type(error).__name__
        raise EngineLostError(
            f"no engine answers at {url}: {why} (start it, or pass --model to start one for this request)"
        ) from None
