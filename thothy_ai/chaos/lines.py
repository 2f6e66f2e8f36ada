"""`Lines`: TCP proxies between one worker and its servers. All are slow together, or are cut together."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from types import TracebackType
from typing import Self

CHUNK = 1 << 16
Target = tuple[str, int] | str  # host and port, or the path of a socket


class Lines:
    """Proxies on a thread of their own. `delay`: seconds that each chunk takes on its way to a server."""

    def __init__(self) -> None:
        self.delay = 0.0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="chaos-lines", daemon=True)
        self._servers: list[asyncio.Server] = []
        self._talks: set[asyncio.Task[None]] = set()

    def open(self, target: Target) -> int:
        """The port of 127.0.0.1 that leads there."""
        return asyncio.run_coroutine_threadsafe(self._open(target), self._loop).result()

    def cut(self) -> None:
        """Break every connection."""
        self._loop.call_soon_threadsafe(self._cut)

    async def _open(self, target: Target) -> int:
        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            talk = asyncio.ensure_future(self._talk(target, reader, writer))
            self._talks.add(talk)
            talk.add_done_callback(self._talks.discard)

        server = await asyncio.start_server(accept, "127.0.0.1", 0)
        self._servers.append(server)
        port: int = server.sockets[0].getsockname()[1]
        return port

    async def _talk(self, target: Target, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry both ways until either side ends, then end the other."""
        ends = [writer]
        ways: list[asyncio.Task[None]] = []
        try:
            far_reader, far_writer = await _reach(target)
            ends.append(far_writer)
            ways = [
                asyncio.ensure_future(self._carry_slowly(reader, far_writer)),
                asyncio.ensure_future(_carry(far_reader, writer)),
            ]
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        except OSError:
            pass  # the server is away: the worker sees its connection closed
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            for end in ends:
                end.transport.abort()

    async def _carry_slowly(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Chunks keep their order and their distance; they only arrive later."""
        underway: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

        async def deliver() -> None:
            while True:
                due, chunk = await underway.get()
                if (wait := due - self._loop.time()) > 0:
                    await asyncio.sleep(wait)
                writer.write(chunk)
                await writer.drain()

        delivering = asyncio.ensure_future(deliver())
        try:
            while chunk := await reader.read(CHUNK):
                underway.put_nowait((self._loop.time() + self.delay, chunk))
        finally:
            delivering.cancel()
            await asyncio.gather(delivering, return_exceptions=True)

    def _cut(self) -> None:
        for talk in self._talks:
            talk.cancel()

    async def _end(self) -> None:
        for server in self._servers:
            server.close()
        self._cut()
        await asyncio.gather(*self._talks, return_exceptions=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(TimeoutError):
            asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(5)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _reach(target: Target) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    if isinstance(target, str):
        return await asyncio.open_unix_connection(target)
    return await asyncio.open_connection(*target)


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while chunk := await reader.read(CHUNK):
        writer.write(chunk)
        await writer.drain()
