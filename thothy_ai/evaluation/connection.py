"""Connects to the engine for one command."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from thothy_ai.admin.engines import silence_client
from thothy_ai.embedded.endpoint import Endpoint
from thothy_ai.engine.api import EngineInfo
from thothy_ai.engine.api.errors import EngineLostError
from thothy_ai.engine.serving.client import EngineClient
from thothy_ai.foreign import connect, is_foreign

ANSWER_SECONDS = 10.0
LEARN_SECONDS = 300.0  # to find out what a server over HTTP can do


@asynccontextmanager
async def connected(endpoint: Endpoint) -> AsyncIterator[tuple[EngineClient, EngineInfo]]:
    """A client of this engine, and what the engine is. Raises `EngineLostError`."""
    silence_client()
    client = connect(endpoint.url, endpoint.token, endpoint.declared)
    try:
        try:
            async with asyncio.timeout(LEARN_SECONDS if is_foreign(endpoint.url) else ANSWER_SECONDS):
                await client.start()
                info = await client.info()
        except (EngineLostError, TimeoutError) as error:
            why = str(error).removeprefix(f"not connected to the engine at {endpoint.url}: ") or type(error).__name__
            raise EngineLostError(
                f"no engine answers at {endpoint.url}: {why} (start it, or pass --model to start one for this request)"
            ) from None
        yield client, info
    finally:
        await client.close()
