"""The engine's server: a Unix socket for its owner only, or a loopback TCP port with a token; any number of clients."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import itertools
import os
import socket
from pathlib import Path

from thothy_ai.engine.api.backend import Backend
from thothy_ai.engine.api.errors import InvalidRequestError
from thothy_ai.engine.serving.abandoned import AbandonedUsageStore
from thothy_ai.engine.serving.address import TcpAddress, UnixAddress, listen_address
from thothy_ai.engine.serving.connection import Connection, Shared

_OWNER_ONLY = 0o177  # the umask that leaves 0600
_BACKLOG = 128


class EngineServer:
    """Owns the listening socket and the connections, but not the backend. Over TCP, clients must present `token`."""

    def __init__(self, backend: Backend, url: str, token: str | None = None) -> None:
        """InvalidRequestError for an address where no engine may listen, such as a TCP port without a token."""
        self._address = listen_address(url, token)
        self._numbers = itertools.count(1)
        self._connections: dict[Connection, asyncio.Task[None]] = {}
        self._settled = asyncio.Event()
        required = token if isinstance(self._address, TcpAddress) else None
        self._shared = Shared(backend, AbandonedUsageStore(), self._settled.set, required)
        self._server: asyncio.Server | None = None
        self._closing = False
        self._inode: int | None = None

    @property
    def url(self) -> str:
        """Where it listens; with the actual port, once started."""
        return str(self._address)

    @property
    def in_flight(self) -> int:
        """Requests of all clients without a result."""
        return sum(connection.in_flight for connection in self._connections)

    async def start(self) -> None:
        """Listen; InvalidRequestError if the address is in use or not available."""
        try:
            if isinstance(self._address, TcpAddress):
                host, port = self._address.host, self._address.port
                self._server = await asyncio.start_server(self._accept, host, port, backlog=_BACKLOG)
                self._address = TcpAddress(host, self._server.sockets[0].getsockname()[1])
            else:
                listener, self._inode = _bind(self._address)
                self._server = await asyncio.start_unix_server(self._accept, sock=listener, backlog=_BACKLOG)
        except OSError as error:
            raise InvalidRequestError(f"cannot listen at {self.url}: {error.strerror or error}") from error

    async def wait_settled(self) -> None:
        """Wait until no client has anything in flight or unsent."""
        while not all(connection.settled for connection in self._connections):
            self._settled.clear()
            await self._settled.wait()

    async def close(self) -> None:
        """Close all connections and remove the socket file."""
        self._closing = True
        if self._server is not None:
            self._server.close()
        self._unlink()
        tasks = list(self._connections.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _unlink(self) -> None:
        """Remove the socket file, unless another engine has replaced it by its own."""
        if self._inode is None or not isinstance(self._address, UnixAddress):
            return
        path = Path(self._address.path)
        with contextlib.suppress(FileNotFoundError):
            if path.stat().st_ino == self._inode:
                path.unlink()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._closing:  # accepted just before `close`
            writer.transport.abort()
            return
        connection = Connection(next(self._numbers), self._shared, reader, writer)
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("asyncio runs this in a task")
        self._connections[connection] = task
        try:
            with contextlib.suppress(asyncio.CancelledError):  # by close(); asyncio would log it as an error
                await connection.serve()
        finally:
            del self._connections[connection]
            self._settled.set()


def _bind(address: UnixAddress) -> tuple[socket.socket, int]:
    """A bound socket, created with mode 0600, and its inode; a socket file on which no process listens is replaced."""
    path = Path(address.path)
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_socket():
        with socket.socket(socket.AF_UNIX) as probe:
            if probe.connect_ex(str(path)) == errno.ECONNREFUSED:
                path.unlink()
    listener = socket.socket(socket.AF_UNIX)
    before = os.umask(_OWNER_ONLY)
    try:
        listener.bind(address.path)
    except OSError:
        listener.close()
        raise
    finally:
        os.umask(before)
    return listener, path.stat().st_ino
