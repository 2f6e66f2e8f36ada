"""A client of an engine in the process of a test."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from thothy_ai.engine.api import AbandonedUsage, AdapterInfo, EngineInfo, EngineStats, GenerationRequest
from thothy_ai.engine.api.backend import Backend, Output
from thothy_ai.engine.api.errors import ConnectionLostError
from thothy_ai.engine.serving.generation import Generation, Generations


class LocalEngineClient:
    """Implements `EngineClient` over a backend of this process, without owning it."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._generations = Generations()
        self._loop: asyncio.AbstractEventLoop | None = None
        self.on_lost: Callable[[], None] = lambda: None  # never called: there is no connection to lose

    @property
    def connected(self) -> bool:
        """True from `start` to `close`."""
        return self._loop is not None

    async def start(self) -> None:
        """Bind to the running loop."""
        self._loop = asyncio.get_running_loop()

    async def info(self) -> EngineInfo:
        """Fixed properties of the backend."""
        return self._backend.info()

    async def stats(self) -> EngineStats:
        """The backend's gauges and counters."""
        return self._backend.stats()

    async def vocabulary(self) -> tuple[bytes, ...]:
        """The bytes of the backend's tokens."""
        return self._backend.vocabulary()

    async def take_abandoned_usage(self) -> AbandonedUsage:
        """Always empty: a client of this process cannot disconnect by itself."""
        return AbandonedUsage(self._backend.info().session_id)

    async def submit(self, request: GenerationRequest) -> Generation:
        """Pass a request to the backend."""
        if self._loop is None:
            raise ConnectionLostError("the client is not started, or closed")
        generation = self._generations.add(request, self._abort, self._stream)
        self._backend.submit(request, self._sink)
        return generation

    def may_have_begun(self, session_id: str, request_ids: Sequence[str]) -> bool:
        """Always: an engine in this process leaves no record, since no process would remain to read it."""
        return True

    async def adapters(self) -> tuple[AdapterInfo, ...]:
        return self._backend.adapters()

    async def load_adapter(self, name: str, folder: str) -> AdapterInfo:
        return await asyncio.wrap_future(self._backend.load_adapter(name, folder))

    async def unload_adapter(self, name: str) -> None:
        await asyncio.wrap_future(self._backend.unload_adapter(name))

    async def stop_accepting(self) -> None:
        """Have the backend refuse new requests."""
        self._backend.stop_accepting()

    async def close(self) -> None:
        """Abort what is in flight."""
        self._loop = None
        for request_id in self._generations.open_ids:
            self._backend.abort(request_id)
        self._generations.fail_all(ConnectionLostError("the client was closed"))

    async def _abort(self, request_id: str) -> None:
        self._backend.abort(request_id)

    async def _stream(self, request_id: str) -> None:
        self._backend.stream(request_id)

    def _sink(self, outputs: list[Output]) -> None:
        """Called from the backend's thread. After `close`, outputs have no recipient."""
        if (loop := self._loop) is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._generations.deliver, outputs)
