"""How long the phases of a start take, told in one line of the log once it is through."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Phases:
    """Seconds by phase, in order. Phases on several threads overlap: their sum may exceed the time they took."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Add what the block takes."""
        began = time.perf_counter()
        yield
        self._seconds[name] = self._seconds.get(name, 0.0) + time.perf_counter() - began

    def __str__(self) -> str:
        """Name and seconds of each."""
        return ", ".join(f"{name} {seconds:.1f} s" for name, seconds in self._seconds.items())
