"""One request at a time to an engine, outside the queue: the running engine, or one that is started for it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from thothy_ai.cli.shell import find_model
from thothy_ai.cli.times import spell
from thothy_ai.engine.api import EngineInfo, GenerationRequest, GenerationResult
from thothy_ai.engine.errors import EngineError, EngineLostError

if TYPE_CHECKING:
    from thothy_ai.embedded.endpoint import Endpoint
    from thothy_ai.engine.client import EngineClient, Generation
    from thothy_ai.settings import Settings

ANSWER_SECONDS = 10.0
ABORT_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Answer:
    """A finished generation; `seconds` from its submission to its end."""

    result: GenerationResult
    seconds: float

    @property
    def tokens_per_second(self) -> float | None:
        """Output tokens per second of waiting."""
        return self.result.usage.output_tokens / self.seconds if self.seconds > 0 else None


@contextmanager
def engine_for(settings: Settings, model: Path | None) -> Iterator[Endpoint]:
    """Where the running engine is. If none is configured, or a model is given, one is started and stopped again."""
    from thothy_ai.embedded.endpoint import Endpoint
    from thothy_ai.embedded.engine import temporary_engine

    if model is None and settings.engine_url is not None:
        yield Endpoint(settings.engine_url, settings.reveal_engine_token())
        return
    path = find_model(settings, model)
    why = "No engine is running: s" if model is None else "S"
    typer.echo(f"{why}tarting one with {path.name} …", err=True)
    began = time.monotonic()
    with temporary_engine(settings, path) as endpoint:
        typer.echo(f"Ready after {spell(time.monotonic() - began)}; it is stopped afterwards.", err=True)
        yield endpoint


@asynccontextmanager
async def connected(endpoint: Endpoint) -> AsyncIterator[tuple[EngineClient, EngineInfo]]:
    """A client of this engine, and what the engine is. Raises `EngineLostError`."""
    from thothy_ai.admin.engine_state import silence_client
    from thothy_ai.engine.client import connect

    silence_client()
    client = connect(endpoint.url, endpoint.token)
    try:
        yield client, await _info(client, endpoint.url)
    finally:
        await client.close()


async def ask(client: EngineClient, request: GenerationRequest, show: Callable[[str], None]) -> Answer:
    """Submit a request that streams, and `show` its text as it comes. However this ends early, it is aborted."""
    began = time.monotonic()
    generation = await client.submit(request)
    try:
        async for delta in generation:
            show(delta.text)
        return Answer(await generation.result(), time.monotonic() - began)
    except BaseException:
        await _abort(generation)
        raise


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
