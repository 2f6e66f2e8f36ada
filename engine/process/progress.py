"""Shows the progress of loading: a bar on a terminal, otherwise a log line every few seconds; and a line at the end."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

EVERY_SECONDS = 5.0  # between log lines
_REDRAW_SECONDS = 0.1
_GB = 1e9
_CLEAR = "\r\x1b[K"
_MIN_BAR, _MAX_BAR = 10, 40

log = logging.getLogger(__name__)


class LoadingProgress:
    """Receives the bytes read so far from the loader, on one thread. `stream` gets the bar if it is a terminal."""

    def __init__(self, stream: TextIO, every_seconds: float = EVERY_SECONDS) -> None:
        self._stream, self._in_place = stream, stream.isatty()
        self._every = _REDRAW_SECONDS if self._in_place else every_seconds
        self._began = self._shown = time.monotonic()
        self._done = self._of = 0

    @contextmanager
    def showing(self) -> Iterator[None]:
        """Remove the bar at the end of the block, and log how much was read."""
        try:
            yield
        finally:
            if self._in_place:
                self._write(_CLEAR)
        if self._of:
            log.info("read %.2f GB of weights in %.1f s, %.2f GB/s", self._of / _GB, self._seconds(), self._rate())

    def __call__(self, done: int, of: int) -> None:
        """Report that `done` of `of` bytes are read; 0 when reading begins."""
        self._done, self._of = done, of
        now = time.monotonic()
        if not done:
            self._began = self._shown = now
        if now - self._shown < self._every:
            return
        self._shown = now
        text = f"{self._done / _GB:.1f} of {self._of / _GB:.1f} GB, {self._rate():.1f} GB/s"
        if not self._in_place:
            log.info("loading weights: %s", text)
            return
        try:
            columns = os.get_terminal_size(self._stream.fileno()).columns - 1
        except (OSError, ValueError):  # a terminal without a size
            columns = 79
        room = columns - len(text) - len("Loading weights   ")
        width = max(_MIN_BAR, min(_MAX_BAR, room))
        full = round(width * self._done / max(self._of, 1))
        self._write(f"{_CLEAR}Loading weights {'█' * full}{'░' * (width - full)} {text}")

    def _rate(self) -> float:
        return self._done / _GB / self._seconds()

    def _seconds(self) -> float:
        return max(time.monotonic() - self._began, 1e-3)

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()
