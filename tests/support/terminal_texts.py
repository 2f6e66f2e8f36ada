"""`thothy` as a person sees it: in a terminal of a given size."""

from __future__ import annotations

import fcntl
import os
import re
import struct
import subprocess
import termios
from collections.abc import Mapping

from tests.support.home import THOTHY

CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class InTerminal:
    """A `thothy` command whose standard output and error are a terminal. Its output is read by `finish`."""

    def __init__(self, *arguments: str, environment: Mapping[str, str], columns: int = 80, rows: int = 24) -> None:
        self._master, slave = os.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        shown = {name: value for name, value in environment.items() if name not in {"COLUMNS", "LINES", "NO_COLOR"}}
        self.process = subprocess.Popen(
            [*THOTHY, *arguments],
            env={**shown, "TERM": "xterm-256color"},
            stdin=subprocess.DEVNULL,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
        )
        os.close(slave)

    def finish(self) -> list[str]:
        """What it has printed once it has ended, line by line and without colours."""
        printed = b""
        while part := self._read():
            printed += part
        self.process.wait()
        os.close(self._master)
        return CONTROL.sub("", printed.decode()).replace("\r\n", "\n").splitlines()

    def read_until(self, words: str) -> str:
        """What it prints, up to these words."""
        printed = ""
        while words not in printed:
            part = self._read()
            assert part, f"it ended: {printed}"
            printed += CONTROL.sub("", part.decode(errors="replace"))
        return printed

    def _read(self) -> bytes:
        try:
            return os.read(self._master, 65536)
        except OSError:  # the other end is closed
            return b""


def in_terminal(*arguments: str, environment: Mapping[str, str], columns: int = 80) -> list[str]:
    """The lines that a command prints to a terminal of that width."""
    return InTerminal(*arguments, environment=environment, columns=columns).finish()
