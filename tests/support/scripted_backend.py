"""`ScriptedBackend`: an engine backend whose outputs a test sends by hand, and helpers around client and server."""

from __future__ import annotations

import asyncio
import stat
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from tests.support.patience import PATIENCE
from thothy_ai.engine.api import (
    EngineInfo,
    EngineStats,
    FinishReason,
    GenerationRequest,
    GenerationResult,
    Message,
    SchedulerStats,
    Usage,
)
from thothy_ai.engine.api.backend import Output, Sink
from thothy_ai.engine.wire.codec import FrameBuffer
from thothy_ai.engine.wire.protocol import decode

TOKEN = "a shared secret"


class ScriptedBackend:
    """A backend whose answers the test gives by hand; all on the loop's thread."""

    def __init__(self) -> None:
        self.sinks: dict[str, Sink] = {}
        self.arrived: asyncio.Queue[str] = asyncio.Queue()
        self.aborted: asyncio.Queue[str] = asyncio.Queue()
        self.streamed: asyncio.Queue[str] = asyncio.Queue()

    def submit(self, request: GenerationRequest, sink: Sink) -> None:
        self.sinks[request.id] = sink
        self.arrived.put_nowait(request.id)

    def abort(self, request_id: str) -> None:
        self.aborted.put_nowait(request_id)

    def stream(self, request_id: str) -> None:
        self.streamed.put_nowait(request_id)

    def stats(self) -> EngineStats:
        return EngineStats(SchedulerStats(running=len(self.sinks)))

    def info(self) -> EngineInfo:
        return EngineInfo("s", "scripted", "cpu", "float32", 16, 10, 100, 0.0)

    def stop_accepting(self) -> None:
        raise NotImplementedError

    def stop(self) -> None:
        raise NotImplementedError

    def say(self, id_: str, *outputs: Output) -> None:
        self.sinks[id_](list(outputs))


def result_of(id_: str, text: str = "", reason: FinishReason = FinishReason.STOP) -> GenerationResult:
    return GenerationResult(id_, text, (), reason, Usage(1, 0, 0, 0.0))


def ask(id_: str, **fields: Any) -> GenerationRequest:
    return GenerationRequest(id_, messages=(Message("user", "hello"),), **fields)


def run_in_loop(body: Coroutine[Any, Any, None]) -> None:
    """Run a test's coroutine; an exception that asyncio would only log fails it."""
    unheard: list[dict[str, Any]] = []

    async def guarded() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: unheard.append(context))
        async with asyncio.timeout(PATIENCE):
            await body

    asyncio.run(guarded())
    assert not unheard


async def until(holds: Callable[[], bool]) -> None:
    while not holds():  # noqa: ASYNC110  what is waited for happens in another process or thread
        await asyncio.sleep(0.001)


def mode_of(path: Path) -> int | None:
    return stat.S_IMODE(path.stat().st_mode) if path.exists() else None


async def raw(url: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_unix_connection(url.removeprefix("unix://"))


async def answer(reader: asyncio.StreamReader) -> list[Any]:
    """All frames up to the end of the connection."""
    return [decode(payload) for payload in FrameBuffer().feed(await reader.read())]
