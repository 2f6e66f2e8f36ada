"""`Supervisor`: restarts ended processes with growing delays, up to a number of failures in a row."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from thothy_ai.embedded.process import Process
from thothy_ai.errors import ServiceStartError

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Patience:
    """How often and how fast a process may fail. Running for `healthy_seconds` resets its count."""

    failures: int = 5
    first_delay: float = 0.5
    max_delay: float = 15.0
    healthy_seconds: float = 60.0
    check_every: float = 0.2

    def delay(self, failures: int) -> float:
        """Seconds to wait before the next start, after this many consecutive failures."""
        return min(self.first_delay * 2.0 ** (failures - 1), self.max_delay)


Cleanup = Callable[[int], bool]  # cleans up after the run with this process id; False: try again later


@dataclass
class _Watched:
    process: Process
    clean_up: Cleanup | None
    started: float
    failures: int = 0
    start_at: float | None = None  # set while it is down
    left: list[int] = field(default_factory=list)  # process ids of ended runs that need cleaning up


class Supervisor:
    """Watches processes on a thread of its own from `watch` to `stop`. Meanwhile, nothing else may use them."""

    def __init__(self, patience: Patience | None = None) -> None:
        self.error: ServiceStartError | None = None
        self._patience = patience or Patience()
        self._watched: list[_Watched] = []
        self._stopping = threading.Event()
        self._ended = threading.Event()  # set once it gave up or was stopped
        self._thread = threading.Thread(target=self._run, name="thothy-supervisor", daemon=True)

    def add(self, process: Process, clean_up: Cleanup | None = None) -> None:
        """Take over a started process. Processes are stopped in reverse order.

        After a watched process has ended, `clean_up` is called at each check until it succeeds.
        """
        self._watched.append(_Watched(process, clean_up, time.monotonic()))

    def release_one(self, process: Process) -> None:
        """Stop watching this process, which then belongs to the caller again."""
        self._watched = [watched for watched in self._watched if watched.process is not process]

    def pids(self) -> dict[str, int | None]:
        """The current process ids, by name."""
        return {watched.process.program.name: watched.process.pid for watched in self._watched}

    def watch(self) -> None:
        self._thread.start()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until stopped; False if `timeout` seconds pass first. Raises `ServiceStartError` if it gave up."""
        ended = self._ended.wait(timeout)
        if self.error is not None:
            raise self.error
        return ended

    def stop(self) -> None:
        """Stop watching, then stop every process, the last added first, even if stopping one fails."""
        self.release()
        with contextlib.ExitStack() as stack:
            for watched in self._watched:
                stack.callback(watched.process.stop)

    def release(self) -> None:
        """Stop watching. The processes keep running and belong to the caller again."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()
        self._ended.set()

    def _run(self) -> None:
        while not self._stopping.wait(self._patience.check_every):
            for watched in self._watched:
                self._check(watched)
                if watched.clean_up is not None:
                    watched.left = [pid for pid in watched.left if not watched.clean_up(pid)]
                watched.process.bound_log()
            if self.error is not None:
                self._ended.set()
                return

    def _check(self, watched: _Watched) -> None:
        """Restart the process if that is due or, if it has ended, schedule its restart."""
        now = time.monotonic()
        if watched.start_at is not None:
            if now >= watched.start_at:
                watched.start_at, watched.started = None, now
                try:
                    watched.process.spawn()
                except ServiceStartError as error:
                    self.error = error
            return
        if watched.process.alive:
            return
        if watched.process.pid is not None and watched.clean_up is not None:
            watched.left.append(watched.process.pid)
        healthy = now - watched.started >= self._patience.healthy_seconds
        watched.failures = 1 if healthy else watched.failures + 1
        if watched.failures >= self._patience.failures:
            self.error = ServiceStartError(f"{watched.process.end_line()}; it ended {watched.failures} times in a row")
            return
        delay = self._patience.delay(watched.failures)
        watched.start_at = now + delay
        log.warning("%s; restarting it in %.1f s", watched.process.end_line(), delay)
