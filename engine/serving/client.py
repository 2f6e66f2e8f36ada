"""`EngineClient`: one contract, two forms. Both belong to the asyncio loop they are started in; neither needs torch.

`SocketEngineClient` connects to an engine process and reconnects by itself; `LocalEngineClient` calls a backend of
this process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol
from uuid import UUID

from thothy_ai.engine.api import AbandonedUsage, EngineInfo, EngineStats, GenerationRequest
from thothy_ai.engine.api.backend import Backend, Output
from thothy_ai.engine.api.errors import ConnectionLostError
from thothy_ai.engine.api.inflight_log import AdmissionFile
from thothy_ai.engine.serving.address import admissions_at, parse_address
from thothy_ai.engine.serving.generation import Generation, Generations
from thothy_ai.engine.serving.socket_client import SocketEngineClient

__all__ = ["EngineClient", "Generation", "LocalEngineClient", "SocketEngineClient", "connect", "had_begun"]


class EngineClient(Protocol):
    """An engine, as the service uses it.

    `on_lost` may be set. It is called on the loop when the connection breaks, before the requests in flight fail.
    """

    on_lost: Callable[[], None]

    @property
    def connected(self) -> bool:
        """Whether a request could be sent now."""

    async def start(self) -> None:
        """Try to connect; from then on the client reconnects by itself. Never fails, and may be called again."""

    async def info(self) -> EngineInfo:
        """Fixed properties of the engine; EngineLostError while not connected."""

    async def stats(self) -> EngineStats:
        """Its gauges and counters; EngineLostError while not connected."""

    async def take_abandoned_usage(self) -> AbandonedUsage:
        """Usage of requests whose client disconnected, each reported once. Call it only when `stats` counts some."""

    async def submit(self, request: GenerationRequest) -> Generation:
        """Send a request; EngineLostError while not connected. `result()` raises the engine's own refusals."""

    def may_have_begun(self, session_id: str, request_ids: Sequence[str]) -> bool:
        """Whether an engine session that has died was working on one of these requests, as far as is known."""

    async def stop_accepting(self) -> None:
        """Have the engine refuse new requests; returns once it does."""

    async def close(self) -> None:
        """Disconnect; requests in flight are aborted by the engine, and end with EngineLostError here."""


def connect(url: str, token: str | None = None) -> SocketEngineClient:
    """A client, not started, of the engine at `unix:///path` or `tcp://127.0.0.1:port`, which requires a token.

    InvalidRequestError for any other URL.
    """
    return SocketEngineClient(parse_address(url), token)


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

    def may_have_begun(self, session_id: str, request_ids: Sequence[str]) -> bool:  # noqa: ARG002  there is no record
        """Always: an engine in this process leaves no record, since no process would remain to read it."""
        return True

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


def had_begun(urls: Sequence[str], session_id: UUID | None, request_ids: Sequence[str]) -> bool:
    """Whether the killed engine of this session, at one of these URLs, had begun with one of these requests.

    True if that is not known: an engine on a TCP port leaves no record. One on a Unix socket whose record is gone ended
    by itself.
    """
    paths = [admissions_at(url) for url in urls]
    if session_id is None:
        return True
    for path in paths:
        if path is not None and (file := AdmissionFile.open(path, str(session_id))) is not None:
            return bool(file.begun(request_ids))
    return None in paths
