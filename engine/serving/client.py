"""`EngineClient`, the contract of an engine's clients. A client belongs to the asyncio loop in which it was started.

`SocketEngineClient` connects to an engine process and reconnects automatically. It needs no torch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol
from uuid import UUID

from thothy_ai.engine.api import AbandonedUsage, AdapterInfo, EngineInfo, EngineStats, GenerationRequest
from thothy_ai.engine.api.inflight_log import AdmissionFile
from thothy_ai.engine.serving.address import admissions_at, parse_address
from thothy_ai.engine.serving.generation import Generation, Generations
from thothy_ai.engine.serving.socket_client import SocketEngineClient

__all__ = ["EngineClient", "Generation", "Generations", "SocketEngineClient", "connect", "had_begun"]


class EngineClient(Protocol):
    """An engine, as the service uses it.

    `on_lost` may be set. It is called on the loop when the connection breaks, before the requests in flight fail.
    """

    on_lost: Callable[[], None]

    @property
    def connected(self) -> bool:
        """Whether a request can be sent now."""

    async def start(self) -> None:
        """Try to connect; afterwards the client reconnects automatically. Never fails, and can be called again."""

    async def info(self) -> EngineInfo:
        """Fixed properties of the engine; EngineLostError while not connected."""

    async def stats(self) -> EngineStats:
        """Its gauges and counters; EngineLostError while not connected."""

    async def vocabulary(self) -> tuple[bytes, ...]:
        """The bytes of each token, by id; empty for special tokens. EngineLostError while not connected."""

    async def take_abandoned_usage(self) -> AbandonedUsage:
        """Usage of requests whose client disconnected, each reported once. Call it only when `stats` counts some."""

    async def submit(self, request: GenerationRequest) -> Generation:
        """Send a request; EngineLostError while not connected. `result()` raises the engine's own refusals."""

    def may_have_begun(self, session_id: str, request_ids: Sequence[str]) -> bool:
        """Whether a dead engine session was, or may have been, working on one of these requests."""

    async def adapters(self) -> tuple[AdapterInfo, ...]:
        """The adapters that requests may name, sorted by name. EngineLostError while not connected.

        Call it only when `stats` counts changes of adapters: an engine of version 0.1 would end the connection.
        """

    async def load_adapter(self, name: str, folder: str) -> AdapterInfo:
        """Load a PEFT folder on the engine's machine under this name; an adapter of the same name is replaced.

        Raises AdapterLoadError, or InvalidRequestError for the name. On a GPU, the first load takes seconds, during
        which steps wait.
        """

    async def unload_adapter(self, name: str) -> None:
        """Have the engine refuse further requests for an adapter; UnknownAdapterError for an unknown name."""

    async def stop_accepting(self) -> None:
        """Have the engine refuse new requests; returns once it does."""

    async def close(self) -> None:
        """Disconnect; requests in flight are aborted by the engine, and end with EngineLostError here."""


def connect(url: str, token: str | None = None) -> SocketEngineClient:
    """A client, not started, of the engine at `unix:///path` or `tcp://127.0.0.1:port`, which requires a token.

    InvalidRequestError for any other URL.
    """
    return SocketEngineClient(parse_address(url), token)


def had_begun(urls: Sequence[str], session_id: UUID | None, request_ids: Sequence[str]) -> bool:
    """Whether the killed engine of this session, at one of these URLs, had begun one of these requests.

    True if unknown, since an engine on a TCP port leaves no record. If the record next to a Unix socket is gone, the
    engine had ended in order.
    """
    paths = [admissions_at(url) for url in urls]
    if session_id is None:
        return True
    for path in paths:
        if path is not None and (file := AdmissionFile.open(path, str(session_id))) is not None:
            return bool(file.begun(request_ids))
    return None in paths
