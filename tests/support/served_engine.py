"""An engine behind its socket, on a thread of this process; and a client of it that vanishes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from tests.support.patience import PATIENCE
from thothy_ai.engine.api import GenerationRequest
from thothy_ai.engine.api.backend import Backend
from thothy_ai.engine.serving.client import connect
from thothy_ai.engine.serving.server import EngineServer


@contextmanager
def served(backend: Backend, url: str) -> Iterator[None]:
    """It listens at `url`."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    server = EngineServer(backend, url)
    try:
        asyncio.run_coroutine_threadsafe(server.start(), loop).result(PATIENCE)
        yield
    finally:
        asyncio.run_coroutine_threadsafe(_close(server), loop).result(PATIENCE)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(PATIENCE)
        loop.close()


async def _close(server: EngineServer) -> None:
    """Close it, and the connections that it had accepted, but not begun to serve."""
    await server.close()
    while begun := asyncio.all_tasks() - {asyncio.current_task()}:
        await asyncio.wait(begun)


def vanish(
    url: str, ended: Sequence[str], running: Sequence[str], once_ended: Callable[[], object] = lambda: None
) -> None:
    """Submit these, wait for the results of `ended`, and disconnect while the others run.

    `once_ended` is called before those are submitted: it may see to it that they run for long enough.
    """

    async def body() -> None:
        client = connect(url)
        await client.start()
        for id_ in ended:
            await (await client.submit(GenerationRequest(id_, text="x"))).result()
        once_ended()
        for id_ in running:
            await client.submit(GenerationRequest(id_, text="x"))
        await client.stats()
        await client.close()

    asyncio.run(body())
