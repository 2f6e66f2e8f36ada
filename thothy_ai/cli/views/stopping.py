"""Handles Ctrl-C in a command that runs an embedded stack: the first ends the command, the second hurries the stop.

`StopDisplay` observes the stack and shows what the stop waits for: on a terminal as a countdown, otherwise as a line
per phase.
"""

from __future__ import annotations

import math
import shutil
import signal
import sys
import threading
import time
from contextlib import suppress
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Self

from thothy_ai.cli.views.tables import count

if TYPE_CHECKING:
    from thothy_ai.embedded.shutdown import Phase, StopProgress

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # SIGHUP: the terminal was closed
REPEAT_SECONDS = 5.0  # between two lines about the same phase, without a terminal
ERASE = "\r\x1b[2K"


class StopRequested(BaseException):
    """A signal asks the command to end. Not a `KeyboardInterrupt`, which code inside the block may catch."""


class StopDisplay:
    """A context manager that handles signals. Without `always`, it speaks only if a signal requested the stop."""

    def __init__(self, *, always: bool = True) -> None:
        self.hurry = threading.Event()
        self.open_jobs: int | None = None  # jobs left open, once the stack has ended
        self._speaks = always
        self._requested = self._stopping = False
        self._terminal = sys.stdout.isatty()
        self._phase: Phase | None = None
        self._text, self._said_at = "", 0.0
        self._transient = False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                if signal.getsignal(number) is not signal.SIG_IGN:  # ignored, as under nohup
                    self._before[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():  # the process is about to end, and a further signal is no error
            signal.signal(number, signal.SIG_IGN if self._requested else handler)

    def begin(self) -> None:
        """Begin the stop; from now on a signal hurries it and raises nothing."""
        self._stopping = True

    def report(self, progress: StopProgress) -> None:
        self._stopping = True
        if progress.open is not None:
            self.open_jobs = progress.open
        text, now = _text(progress), time.monotonic()
        counts_down = progress.seconds_left > 0
        is_new = progress.phase is not self._phase
        if not self._speaks or text is None or text == self._text or not (is_new or counts_down):
            return
        if is_new or self._terminal or now - self._said_at >= REPEAT_SECONDS:
            self._phase, self._text, self._said_at = progress.phase, text, now
            with suppress(OSError, ValueError):  # the stop continues without a terminal
                self._write(text, transient=counts_down and self._terminal)

    def end(self, text: str) -> None:
        with suppress(OSError, ValueError):
            self._write(text)

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        if self._stopping:
            self.hurry.set()
            return
        self._speaks = self._requested = True
        self._transient = self._terminal  # "^C" and what is before it
        raise StopRequested

    def _write(self, text: str, *, transient: bool = False) -> None:
        if self._terminal:
            text = (ERASE if self._transient or transient else "") + text[: shutil.get_terminal_size().columns - 1]
        self._transient = transient
        sys.stdout.write(text if transient else text + "\n")
        sys.stdout.flush()


def _text(progress: StopProgress) -> str | None:
    from thothy_ai.embedded.shutdown import Phase

    match progress.phase:
        case Phase.FINISH:
            seconds, running = max(1, math.ceil(progress.seconds_left)), _counted(progress.running, "running job")
            waiting = f"waiting up to {seconds} s for {running}; Ctrl-C again stops at once."
            return f"Stopping: {waiting if progress.running != 0 else 'no job is running.'}"
        case Phase.RELEASE if progress.running != 0:
            return f"Releasing {_counted(progress.running, 'job')} to the queue; no failure is charged."
        case Phase.HURRY:
            return "Stopping at once: running jobs go back to the queue; no failure is charged."
        case Phase.SERVICES:
            return "Stopping the engine..."
        case Phase.SERVERS:
            return "Stopping Valkey and Postgres..."
    return None


def _counted(number: int | None, noun: str) -> str:
    """A counted noun; a plural if the number is not known."""
    return f"{noun}s" if number is None else count(number, noun)
