"""Any server with OpenAI's API as an engine: `connect` gives a client of it, or of an engine of our own, by its URL.

    client      `EngineClient` over HTTP: requests to streams, retries while the server is busy, aborts
    abilities   what the server can do, found by asking it
    bodies      a request as the server's JSON, and what comes back
    shares seconds by tokens in flight, since the GPU is not measured
    http        one server's connections

Like the door, it needs httptools.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from thothy_ai.engine.serving.client import connect as connect_to_ours
from thothy_ai.foreign.declared import DeclaredEngine, declared_by

if TYPE_CHECKING:
    from thothy_ai.engine.serving.client import EngineClient

__all__ = ["DeclaredEngine", "connect", "declared_by", "is_foreign"]


def is_foreign(url: str) -> bool:
    """Whether the URL names a server over HTTP rather than one of our engines."""
    return url.startswith(("http://", "https://"))


def connect(url: str, token: str | None = None, declared: DeclaredEngine | None = None) -> EngineClient:
    """A client, not started. `token` is an engine's, or the server's API key. InvalidRequestError for any other URL."""
    if not is_foreign(url):
        return connect_to_ours(url, token)
    from thothy_ai.foreign.client import ForeignEngineClient  # noqa: PLC0415 - needs httptools

    return ForeignEngineClient(url, token, declared or DeclaredEngine())
