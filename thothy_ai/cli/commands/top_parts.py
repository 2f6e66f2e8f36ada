"""The parts of `thothy top`, each read again and again on a thread of its own: one that is unreachable delays none."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

T_co = TypeVar("T_co", covariant=True)
U = TypeVar("U")


class Reader(Protocol[T_co]):
    """Reads one part's figures."""

    def read(self) -> T_co:
        """The figures of this moment; raises if the part is unreachable."""

    def close(self) -> None:
        """Close its connections."""


@dataclass(frozen=True, slots=True)
class Unreachable:
    """Why a part has no figures."""

    why: str


class Part(Generic[U]):
    """One part: its latest figures, or why there are none. A reader that fails is made again, with fresh settings."""

    def __init__(self, make: Callable[[], Reader[U]], seconds: float) -> None:
        self._make = make
        self._seconds = seconds
        self._reader: Reader[U] | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.read = threading.Event()  # at least once
        self.latest: U | Unreachable = Unreachable("not read yet")

    def start(self) -> None:
        """Start reading."""
        self._thread.start()

    def stop(self, seconds: float) -> None:
        """Stop reading, and wait at most so long for it: a read that hangs ends with the process."""
        self._stopping.set()
        self._thread.join(seconds)

    def _run(self) -> None:
        while True:
            self.latest = self._read()
            self.read.set()
            if self._stopping.wait(self._seconds):
                break
        self._close()

    def _read(self) -> U | Unreachable:
        try:
            if self._reader is None:
                self._reader = self._make()
            return self._reader.read()
        except Exception as error:  # noqa: BLE001 - whatever is wrong with a part, the others are shown
            self._close()
            return Unreachable(" ".join(str(error).split()) or type(error).__name__)

    def _close(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()
