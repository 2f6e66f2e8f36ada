"""Reports progress on standard error: in place on a terminal, otherwise with a line every few seconds."""

from __future__ import annotations

import os
import time
from typing import TextIO

EVERY_SECONDS = 5.0  # without a terminal
_CLEAR = "\r\x1b[K"


class Progress:
    """Writes to `stream`. The next output overwrites an `update`; the text of `say` stays."""

    def __init__(self, stream: TextIO, every_seconds: float = EVERY_SECONDS) -> None:
        self._stream, self._every = stream, every_seconds
        self._in_place = stream.isatty()
        self._last = time.monotonic()

    def say(self, text: str) -> None:
        self._write(f"{_CLEAR}{text}\n" if self._in_place else f"{text}\n")
        self._last = time.monotonic()

    def update(self, text: str) -> None:
        """Show the current state; without a terminal, only if nothing was written for a while."""
        if self._in_place:
            try:
                columns = os.get_terminal_size(self._stream.fileno()).columns - 1
            except (OSError, ValueError):  # not a terminal, or one without a size
                columns = 79
            self._write(f"{_CLEAR}{text[:columns]}")
        elif time.monotonic() - self._last >= self._every:
            self.say(text)

    def clear(self) -> None:
        """Remove the last update from the terminal."""
        if self._in_place:
            self._write(_CLEAR)

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


def spell(seconds: float) -> str:
    """`40 s`, `4 m 10 s` or `2 h 05 m`."""
    whole = max(1, round(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} m {whole % 60:02} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02} m"


def counted(number: int, noun: str) -> str:
    """A number with its noun: `1 job`, `1,000 jobs`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
