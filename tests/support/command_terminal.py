"""One command on a terminal of its own: what it writes there, keys and Ctrl-C for it, and how it ends.

For a shell in which several commands are typed, see `terminal.py`.
"""

from __future__ import annotations

import codecs
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.support.patience import PATIENCE

_CODES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_NOT_PASSED_ON = {"COLUMNS", "LINES", "NO_COLOR"}  # they would overrule the terminal


class CommandTerminal:
    """The person's side of it. `text` is everything that was written so far, with its control codes."""

    def __init__(self, process: subprocess.Popen[bytes], screen: int) -> None:
        self.text = ""
        self._process = process
        self._screen = screen
        self._decode = codecs.getincrementaldecoder("utf-8")(errors="replace").decode

    @property
    def lines(self) -> list[str]:
        """What was written so far, without control codes."""
        return _CODES.sub("", self.text).replace("\r\n", "\n").splitlines()

    def wait_for(self, *words: str, times: int = 1) -> None:
        """Until all of them were written, so many times."""
        until = time.monotonic() + PATIENCE
        while not all(self.text.count(word) >= times for word in words):
            assert time.monotonic() < until, f"no {words} in {self.text!r}"
            runs = self._runs()  # before reading: what it writes last is read, too
            assert self._read(0.1) or runs, self.text

    def press(self, key: str) -> None:
        os.write(self._screen, key.encode())

    def interrupt(self) -> None:
        """As Ctrl-C does."""
        self._process.send_signal(signal.SIGINT)

    def interrupt_at_prompt(self) -> int:
        """Its exit code, as a shell says it. A Ctrl-C that came just before Python begins to read would wait there, and
        a second one would meet it while it ends.
        """
        until = time.monotonic() + PATIENCE
        while not self._sleeps():
            assert time.monotonic() < until, self.text
            time.sleep(0.02)
        self.interrupt()
        code = self.ended()
        return 128 - code if code < 0 else code

    def ended(self) -> int:
        """Its exit code, once it has ended; everything it wrote is read."""
        until = time.monotonic() + PATIENCE
        while (runs := self._runs()) or self._read(0.0):
            self._read(0.1 if runs else 0.0)
            assert time.monotonic() < until, self.text
        return self._process.wait(PATIENCE)

    def _runs(self) -> bool:
        return self._process.poll() is None

    def _sleeps(self) -> bool:
        """Whether it waits for something, as for a key."""
        return Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "S"

    def _read(self, seconds: float) -> bool:
        if not select.select([self._screen], [], [], seconds)[0]:
            return False
        with suppress(OSError):  # the other side is closed
            self.text += self._decode(data := os.read(self._screen, 65536))
            return bool(data)
        return False


@contextmanager
def on_terminal(
    command: Sequence[str], environment: Mapping[str, str], columns: int = 80, rows: int = 24
) -> Iterator[CommandTerminal]:
    """A running command on a terminal of this size. It is killed if it has not ended when the context is left."""
    screen, side = pty.openpty()
    fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    env = {name: value for name, value in environment.items() if name not in _NOT_PASSED_ON}
    process = subprocess.Popen(
        list(command), env=env | {"TERM": "xterm-256color"}, stdin=side, stdout=side, stderr=side,
        start_new_session=True,
    )  # fmt: skip
    os.close(side)
    try:
        yield CommandTerminal(process, screen)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(PATIENCE)
        os.close(screen)


def lines_on_terminal(command: Sequence[str], environment: Mapping[str, str], *, exit_code: int = 0) -> list[str]:
    """What a command writes to a terminal of 80 columns until it ends."""
    with on_terminal(command, environment) as screen:
        assert screen.ended() == exit_code, screen.text
        return screen.lines
