"""Phases of a benchmark that takes minutes: each is named on standard error, with its time, and none waits for ever.

[   4.1 s] starting 2 engines ...
[   9.1 s] starting 2 engines: 5 s so far
[  12.6 s] starting 2 engines: took 8.5 s
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from thothy_ai.bench.alarm import alarm

EVERY_SECONDS = 5.0  # between two lines of a phase
TAIL_LINES = 15  # of a log, in an error


class BenchmarkError(Exception):
    """The benchmark has no result. The message is one line."""


class PhaseTimeoutError(BenchmarkError):
    """A phase did not end within its seconds."""


class Phases:
    """Owns the clock and the alarm (SIGALRM), so that it belongs to the main thread. `limit`: a phase's seconds."""

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self._began = time.monotonic()

    @contextmanager
    def phase(self, name: str, state: Callable[[], str] = lambda: "") -> Iterator[None]:
        """Run the block as a phase; what `state` returns is said now and then. Raises `PhaseTimeoutError`."""
        began = time.monotonic()
        self.say(f"{name} ...")

        def so_far() -> None:
            self.say(f"{name}: {time.monotonic() - began:.0f} s so far{_after_comma(state())}")

        def too_long() -> PhaseTimeoutError:
            return PhaseTimeoutError(f"{name}: not done after {self._limit:g} s{_after_comma(state())}")

        with _ticking(so_far), alarm(self._limit, too_long):
            yield
        self.say(f"{name}: took {time.monotonic() - began:.1f} s")

    def say(self, text: str) -> None:
        """A line with the seconds since the benchmark began."""
        sys.stderr.write(f"[{time.monotonic() - self._began:7.1f} s] {text}\n")
        sys.stderr.flush()


@contextmanager
def logs_in_errors(home: Path) -> Iterator[None]:
    """Print the last lines of a stack's logs if the block fails: its home is deleted. Raises `BenchmarkError`."""
    try:
        yield
    except Exception as error:
        for log in sorted((home / "logs").glob("*.log")):
            _print_tail(log)
        if isinstance(error, BenchmarkError):
            raise
        traceback.print_exc()
        raise BenchmarkError(str(error) or type(error).__name__) from error


def _print_tail(log: Path) -> None:
    with contextlib.suppress(OSError):
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()[-TAIL_LINES:]
        sys.stderr.write("".join(f"{log.stem} | {line}\n" for line in lines or ["(nothing written)"]))


@contextmanager
def _ticking(say: Callable[[], None]) -> Iterator[None]:
    over = threading.Event()

    def run() -> None:
        while not over.wait(EVERY_SECONDS):
            say()

    thread = threading.Thread(target=run, name="phase", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _after_comma(text: str) -> str:
    return f", {text}" if text else ""
