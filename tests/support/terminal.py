"""A terminal with a real shell in it: commands are typed, and every screen is kept as text.

The shell's prompts carry invisible marks (OSC 133, as terminals with shell integration use them), so that the end of a
command and its exit code are known without guessing.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import pyte

COLUMNS, ROWS = 80, 24
PATIENCE = 600.0  # seconds for one command, on a busy machine
HISTORY = 10_000
_END, _MORE = "\x1b]133;D;", "\x1b]133;C\x07"
_ENDED = re.compile(re.escape(_END) + r"(\d+)\x07")
_PROMPTS = {"PS1": f"\\[{_END}$?\x07\\]$ ", "PS2": f"\\[{_MORE}\\]> "}
# A session of its own, with the terminal as its controlling one: so that Ctrl-C reaches the command.
_SHELL = (
    "import fcntl, os, termios; os.setsid(); fcntl.ioctl(0, termios.TIOCSCTTY, 0);"
    "os.execvp('bash', ['bash', '--noprofile', '--norc', '--noediting', '-i'])"
)
_ESCAPES = re.compile(r"\x1b(?:\][^\x07\x1b]*(?:\x07|\x1b\\)|\[[0-?]*[ -/]*[@-~]|[@-Z\\-_=>78])")


@dataclass(frozen=True, slots=True)
class Frame:
    """A screen: when it was seen, in seconds, and its rows."""

    at: float
    rows: tuple[str, ...]

    def __str__(self) -> str:
        border = "+" + "-" * COLUMNS + "+"
        body = "\n".join(f"|{row:<{COLUMNS}}|" for row in self.rows)
        return f"{self.at:.1f} s\n{border}\n{body}\n{border}\n"


@dataclass(frozen=True, slots=True)
class Ran:
    """A command that has ended: what it left on the screen, what it sent, its exit code."""

    rows: list[str]
    sent: str
    code: int

    @property
    def lines(self) -> list[str]:
        """What it sent, without escape sequences; of a line that is drawn again and again, each version."""
        return re.split(r"[\r\n]+", _ESCAPES.sub("", self.sent))


class Terminal:
    """A shell in a terminal of 80 columns and 24 rows. Leaving it hangs up."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self.frames: list[Frame] = []
        self._screen = pyte.HistoryScreen(COLUMNS, ROWS, history=HISTORY)
        self._stream = pyte.ByteStream(self._screen)
        self._began = time.monotonic()
        self._sent = b""
        self._fd, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        own = {"TERM": "xterm-256color", "LC_ALL": "C.UTF-8", "HISTFILE": ""} | _PROMPTS
        self._shell = subprocess.Popen(
            [sys.executable, "-c", _SHELL], stdin=theirs, stdout=theirs, stderr=theirs, cwd=folder,
            env={name: value for name, value in environment.items() if name not in {"COLUMNS", "LINES"}} | own,
        )  # fmt: skip
        os.close(theirs)
        self._until(lambda: _ENDED.search(self._text()))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Hang up."""
        self._shell.send_signal(signal.SIGHUP)
        os.close(self._fd)
        try:
            self._shell.wait(timeout=120)
        except subprocess.TimeoutExpired:
            self._shell.kill()
            self._shell.wait()

    def run(self, *lines: str, patience: float = PATIENCE) -> Ran:
        """Type a command, which may take several lines, and wait until it ends."""
        self.start(*lines)
        return self.ended(patience)

    def start(self, *lines: str) -> None:
        """Type a command. It must be one command: the shell prompts for each further line."""
        for number, line in enumerate(lines):
            self._first_row = self._row() + 1
            self._sent = b""
            assert len(line) < COLUMNS - 2, f"too long to be typed on one line: {line}"
            self.press(line + "\n")
            if number < len(lines) - 1:
                self._until(lambda: _MORE in self._text())

    def press(self, keys: str) -> None:
        """Send keys as they are; `\\x03` is Ctrl-C."""
        os.write(self._fd, keys.encode())

    def ended(self, patience: float = PATIENCE) -> Ran:
        """Wait until the command ends."""
        found = self._until(lambda: _ENDED.search(self._text()), patience)
        rows = self.rows()[:-1]  # the last one is the prompt
        sent = self._text()[: found.start()].partition("\n")[2]
        return Ran(rows, sent, int(found[1]))

    def rows(self) -> list[str]:
        """What the command has left on the screen, above it too."""
        above = [_shown(row) for row in self._screen.history.top]
        return [row.rstrip() for row in (above + self._screen.display)[self._first_row : self._row() + 1]]

    def wait_for(self, ready: Callable[[list[str]], bool], patience: float = PATIENCE) -> list[str]:
        """Wait until the rows of the running command are as wanted."""
        self._until(lambda: ready(self.rows()), patience)
        return self.rows()

    def pump(self, seconds: float = 0.0) -> bool:
        """Read what has come, waiting for it at most so long; false if nothing has."""
        if not select.select([self._fd], [], [], seconds)[0]:
            return False
        chunk = os.read(self._fd, 65536)
        self._sent += chunk
        self._stream.feed(chunk)
        screen = tuple(row.rstrip() for row in self._screen.display)
        if not self.frames or self.frames[-1].rows != screen:
            self.frames.append(Frame(time.monotonic() - self._began, screen))
        return True

    def _until(self, ready: Callable[[], object], patience: float = PATIENCE) -> re.Match[str]:
        end = time.monotonic() + patience
        while not (found := ready()):
            if time.monotonic() > end:
                raise TimeoutError(f"after {patience:g} s the screen is\n{self.frames[-1] if self.frames else ''}")
            self.pump(0.2)
        return found  # type: ignore[return-value]

    def _text(self) -> str:
        return self._sent.decode(errors="replace")

    def _row(self) -> int:
        return len(self._screen.history.top) + self._screen.cursor.y


def _shown(row: Mapping[int, pyte.screens.Char]) -> str:
    return "".join(row[at].data for at in range(COLUMNS))
