"""A command on a terminal of its own: what it writes, keys and signals to it, and how it ends."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

from tests.support.queue_bench import PATIENCE


class Terminal:
    """The side of a person. `text` is everything that was written so far."""

    def __init__(self, process: subprocess.Popen[bytes], screen: int) -> None:
        self.process = process
        self.text = ""
        self._screen = screen

    def wait_for(self, *words: str) -> None:
        """Until all of them were written."""
        until = time.monotonic() + PATIENCE
        while not all(word in self.text for word in words):
            assert time.monotonic() < until, f"no {words} in {self.text!r}"
            assert self._read(0.1) or self.process.poll() is None, self.text

    def press(self, key: str) -> None:
        os.write(self._screen, key.encode())

    def interrupt(self) -> None:
        """As Ctrl-C does."""
        self.process.send_signal(signal.SIGINT)

    def ended(self) -> int:
        """Its exit code, once it has ended; everything it wrote is read."""
        until = time.monotonic() + PATIENCE
        while self._read(0.1) or self.process.poll() is None:
            assert time.monotonic() < until, self.text
        return self.process.wait(PATIENCE)

    def _read(self, seconds: float) -> bool:
        if not select.select([self._screen], [], [], seconds)[0]:
            return False
        with suppress(OSError):  # the other side is closed
            self.text += (data := os.read(self._screen, 65536)).decode(errors="replace")
            return bool(data)
        return False


@contextmanager
def terminal(
    command: Sequence[str], environment: Mapping[str, str], columns: int = 80, lines: int = 24
) -> Iterator[Terminal]:
    """A running command on a terminal of this size."""
    screen, side = pty.openpty()
    fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    env = {**environment, "TERM": "xterm-256color"}
    process = subprocess.Popen(list(command), env=env, stdin=side, stdout=side, stderr=side, start_new_session=True)
    os.close(side)
    try:
        yield Terminal(process, screen)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(PATIENCE)
        os.close(screen)
