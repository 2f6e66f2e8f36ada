"""A TCP forwarder in a process of its own: a cluster's name, whose connections stay open after it points elsewhere.

Stopped with SIGSTOP, it is a pooler or a machine that hangs: the kernel still acknowledges what it is sent.
"""

from __future__ import annotations

import asyncio
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from sqlalchemy import make_url


class Forwarder:
    """`port` is where it listens. New connections go to the port that was last given."""

    def __init__(self, folder: Path, target: int) -> None:
        self._file = folder / "target"
        self.point_to(target)
        with socket.socket() as listening:
            listening.bind(("127.0.0.1", 0))
            listening.listen(200)
            self.port = listening.getsockname()[1]
            descriptor = listening.fileno()
            command = [sys.executable, __file__, str(descriptor), str(self._file)]
            self.process = subprocess.Popen(command, pass_fds=[descriptor], stdout=subprocess.PIPE)
        assert self.process.stdout
        assert self.process.stdout.readline()  # it serves

    def point_to(self, target: int) -> None:
        self._file.write_text(str(target), encoding="ascii")

    def url(self, direct: str) -> str:
        """The URL of the same database through the forwarder."""
        return make_url(direct).set(host="127.0.0.1", port=self.port).render_as_string(hide_password=False)

    @contextmanager
    def stopped(self) -> Iterator[None]:
        self.process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)


@contextmanager
def forwarder(folder: Path, target: int) -> Iterator[Forwarder]:
    running = Forwarder(folder, target)
    try:
        yield running
    finally:
        running.process.kill()
        running.process.communicate()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()


async def _serve(descriptor: int, file: Path) -> None:
    def target() -> int:
        return int(file.read_text(encoding="ascii"))

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection("127.0.0.1", target())
        except OSError:
            writer.close()
            return
        await asyncio.gather(_copy(reader, back), _copy(there, writer))

    async with await asyncio.start_server(forward, sock=socket.socket(fileno=descriptor)) as server:
        print("serving", flush=True)  # noqa: T201 - to the process that started it
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1]), Path(sys.argv[2])))
