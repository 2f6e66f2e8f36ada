"""`EngineClient`: one contract, two forms. Both belong to the asyncio loop they are started in; neither needs torch.

`SocketEngineClient` talks to an engine process and reconnects by itself; `LocalEngineClient` stands on a backend in
this process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from thothy_ai.engine.api import EngineInfo, EngineStats, GenerationRequest, Orphans
from thothy_ai.engine.backend import Backend, Output
from thothy_ai.engine.errors import EngineLostError
from thothy_ai.engine.serving.address import parse_address
from thothy_ai.engine.serving.generation import Generation, Generations
from thothy_ai.engine.serving.socket_client import SocketEngineClient

__all__ = ["EngineClient", "Generation", "LocalEngineClient", "SocketEngineClient", "connect"]


class EngineClient(Protocol):
    """What the service sees of an engine. `on_lost` is called on the loop when the connection breaks; set it freely."""

    on_lost: Callable[[], None]

    @property
    def connected(self) -> bool:
        """Whether a request could be sent now."""

    async def start(self) -> None:
        """Try to connect; from then on the client reconnects by itself. Never fails; calling it again is harmless."""

    async def info(self) -> EngineInfo:
        """Who the engine is; EngineLostError while it is away."""

    async def stats(self) -> EngineStats:
        """Its gauges and counters; EngineLostError while it is away."""

    async def orphans(self) -> Orphans:
        """What requests of vanished clients cost; each is told once. Ask only when `stats` counts some."""

    async def submit(self, request: GenerationRequest) -> Generation:
        """Send a request; EngineLostError while the engine is away. Its own refusals come from `result()`."""

    async def drain(self) -> None:
        """Have the engine take nothing new; returns once it does so."""

    async def close(self) -> None:
        """Disconnect; what is in flight is aborted there and ends with EngineLostError here."""


def connect(url: str) -> SocketEngineClient:
    """A client, not started, of the engine at `unix:///path` or `tcp://127.0.0.1:port`; InvalidRequestError else."""
    return SocketEngineClient(parse_address(url))


class LocalEngineClient:
    """Implements `EngineClient` over a backend of this process, which it does not own."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._generations = Generations()
        self._loop: asyncio.AbstractEventLoop | None = None
        self.on_lost: Callable[[], None] = lambda: None  # a backend of this process is not lost

    @property
    def connected(self) -> bool:
        """From `start` to `close`."""
        return self._loop is not None

    async def start(self) -> None:
        """Bind to the running loop."""
        self._loop = asyncio.get_running_loop()

    async def info(self) -> EngineInfo:
        """Who the engine is."""
        return self._backend.info()

    async def stats(self) -> EngineStats:
        """Its gauges and counters."""
        return self._backend.stats()

    async def orphans(self) -> Orphans:
        """None: a client in this process does not vanish alone."""
        return Orphans(self._backend.info().session_id)

    async def submit(self, request: GenerationRequest) -> Generation:
        """Hand a request to the backend."""
        if self._loop is None:
            raise EngineLostError("the client is not started, or closed")
        generation = self._generations.add(request, self._abort)
        self._backend.submit(request, self._sink)
        return generation

    async def drain(self) -> None:
        """Have the backend take nothing new."""
        self._backend.drain()

    async def close(self) -> None:
        """Abort what is in flight."""
        self._loop = None
        for request_id in self._generations.open_ids:
            self._backend.abort(request_id)
        self._generations.fail_all(EngineLostError("the client was closed"))

    async def _abort(self, request_id: str) -> None:
        self._backend.abort(request_id)

    def _sink(self, outputs: list[Output]) -> None:
        """Called from the backend's thread. After `close` there is nobody left to tell."""
        if (loop := self._loop) is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._generations.deliver, outputs)
