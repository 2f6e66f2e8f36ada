"""Polls the sources of `thothy top`, each on its own thread, so that an unreachable one does not delay the others."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

T_co = TypeVar("T_co", covariant=True)
U = TypeVar("U")


class PolledSource(Protocol[T_co]):
    """A source of figures, such as Postgres."""

    def read(self) -> T_co:
        """Return the current figures; raise if the source is unreachable."""

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Unreachable:
    """The reason why a source has no figures."""

    why: str


class Poller(Generic[U]):
    """Keeps the latest figures of a source. After a failure, it makes the source anew, with fresh settings."""

    def __init__(self, make: Callable[[], PolledSource[U]], seconds: float) -> None:
        self._make = make
        self._seconds = seconds
        self._source: PolledSource[U] | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.polled = threading.Event()  # set after the first read, even if that failed
        self.latest: U | Unreachable = Unreachable("not read yet")

    def start(self) -> None:
        self._thread.start()

    def stop(self, seconds: float) -> None:
        """Stop polling, and wait at most `seconds`. A read that hangs ends with the process."""
        self._stopping.set()
        self._thread.join(seconds)

    def _run(self) -> None:
        while True:
            try:
                if self._source is None:
                    self._source = self._make()
                self.latest = self._source.read()
            except Exception as error:  # noqa: BLE001 - no fault of one source hides the others
                self._close()
                self.latest = Unreachable(" ".join(str(error).split()) or type(error).__name__)
            self.polled.set()
            if self._stopping.wait(self._seconds):
                break
        self._close()

    def _close(self) -> None:
        source, self._source = self._source, None
        if source is not None:
            source.close()
