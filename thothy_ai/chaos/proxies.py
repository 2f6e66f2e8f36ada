"""`Proxies`: TCP proxies between one worker and its servers, all slowed down or cut together."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from types import TracebackType
from typing import Self

CHUNK = 1 << 16
LINGER_SECONDS = 3.0  # for a worker to read a server's last data after the server closed
Target = tuple[str, int] | str  # host and port, or the path of a socket


class Proxies:
    """Runs proxies on a separate thread. `delay`: seconds that each chunk takes on its way to a server."""

    def __init__(self) -> None:
        self.delay = 0.0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="chaos-proxies", daemon=True)
        self._servers: list[asyncio.Server] = []
        self._connections: set[asyncio.Task[None]] = set()

    def open(self, target: Target) -> int:
        """Open a proxy; returns its port on 127.0.0.1."""
        return asyncio.run_coroutine_threadsafe(self._open(target), self._loop).result()

    def cut(self) -> None:
        self._loop.call_soon_threadsafe(self._cut)

    async def _open(self, target: Target) -> int:
        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            connection = asyncio.ensure_future(self._serve(target, reader, writer))
            self._connections.add(connection)
            connection.add_done_callback(self._connections.discard)

        server = await asyncio.start_server(accept, "127.0.0.1", 0)
        self._servers.append(server)
        port: int = server.sockets[0].getsockname()[1]
        return port

    async def _serve(self, target: Target, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward both ways until one side closes, then close the other; a worker can first read the remaining data."""
        ends = [writer]
        directions: list[asyncio.Task[None]] = []
        try:
            connecting = (
                asyncio.open_unix_connection(target) if isinstance(target, str) else asyncio.open_connection(*target)
            )
            far_reader, far_writer = await connecting
            ends.append(far_writer)
            to_server = asyncio.ensure_future(self._forward_delayed(reader, far_writer))
            to_worker = asyncio.ensure_future(_forward(far_reader, writer))
            directions = [to_server, to_worker]
            await asyncio.wait(directions, return_when=asyncio.FIRST_COMPLETED)
            if to_worker.done() and to_worker.exception() is None:
                writer.write_eof()
                await asyncio.wait([to_server], timeout=LINGER_SECONDS)
        except OSError:
            pass  # the server is down: the worker sees its connection closed
        finally:
            for direction in directions:
                direction.cancel()
            await asyncio.gather(*directions, return_exceptions=True)
            for end in ends:
                end.transport.abort()

    async def _forward_delayed(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward with `delay`: chunks arrive later, but keep their order and spacing."""
        in_transit: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

        async def deliver() -> None:
            while True:
                due, chunk = await in_transit.get()
                if (wait := due - self._loop.time()) > 0:
                    await asyncio.sleep(wait)
                writer.write(chunk)
                await writer.drain()

        delivering = asyncio.ensure_future(deliver())
        try:
            while chunk := await reader.read(CHUNK):
                in_transit.put_nowait((self._loop.time() + self.delay, chunk))
        finally:
            delivering.cancel()
            await asyncio.gather(delivering, return_exceptions=True)

    def _cut(self) -> None:
        for connection in self._connections:
            connection.cancel()

    async def _end(self) -> None:
        for server in self._servers:
            server.close()
        self._cut()
        await asyncio.gather(*self._connections, return_exceptions=True)

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


async def _forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while chunk := await reader.read(CHUNK):
        writer.write(chunk)
        await writer.drain()
