"""`Shutdown`: ends the processes of a stack in order, within seconds, and tells an observer what it waits for.

dispatcher, reaper   first: nothing more is dispatched
workers              finish what they can before their deadline, then release the rest
engines              once no worker uses them
Valkey, Postgres     last: the worker records in them what it releases

An observer can hurry the stop at any time. The worker then releases its jobs at once, and processes that do not end
within a second are killed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol

from thothy_ai.embedded.process import Process

POLL_SECONDS = 0.1
RELEASE_SECONDS = 15.0  # past its deadline, for a worker to record its released jobs, even in a slow Postgres
HURRY_SECONDS = 1.0  # for a worker to release its jobs, and for the servers to close, when the stop is hurried
AT_ONCE_SECONDS = 0.2  # for a process that has nothing left to do


class Phase(Enum):
    """What a stopping stack waits for."""

    FINISH = auto()  # for running jobs to finish
    RELEASE = auto()  # for the worker to release the others
    HURRY = auto()  # for the worker to release all jobs at once
    SERVICES = auto()
    SERVERS = auto()


@dataclass(frozen=True, slots=True)
class StopProgress:
    """One moment of a stop. The numbers of jobs are None when they are unknown or belong to another phase."""

    phase: Phase
    running: int | None = None
    open: int | None = None
    seconds_left: float = 0.0


class StopObserver(Protocol):
    """Receives the progress of a stop, and can hurry the stop."""

    @property
    def hurry(self) -> threading.Event:
        """An event that the observer sets to hurry the stop."""

    def begin(self) -> None:
        """Called first, before anything that takes time. An exception aborts the stop."""

    def report(self, progress: StopProgress) -> None:
        """Called several times per second, and once before any process is signalled."""


class Unobserved:
    """An observer that shows nothing and never hurries the stop."""

    def __init__(self) -> None:
        self.hurry = threading.Event()

    def begin(self) -> None:
        pass

    def report(self, progress: StopProgress) -> None:
        pass


class Shutdown:
    """Stops `processes`, which are given by name: `worker`, or `worker-0`, `worker-1` and so on. Any can be missing.

    Nothing else may use them during the stop.
    """

    def __init__(self, processes: Mapping[str, Process], observer: StopObserver) -> None:
        self._processes = processes
        self._observer = observer

    def begin(self) -> None:
        self._observer.begin()

    def stop_services(self, deadline_seconds: float, running: Callable[[], int | None]) -> None:
        """Stop dispatcher, reaper, door, worker and engine. `running` counts the jobs that the worker still runs."""
        early, worker = self._named("dispatcher", "reaper", "serve"), self._named("worker")
        engine = self._named("engine")
        self._report(Phase.FINISH, running(), deadline_seconds)
        for process in (*early, *worker):
            process.terminate()
        deadline = time.monotonic() + deadline_seconds
        if not all(self._await_worker(process, deadline, running) for process in worker):
            self._report(Phase.HURRY)
            self._end(worker, HURRY_SECONDS)  # the workers' second signal
        self._report(Phase.SERVICES)
        self._end((*early, *engine), AT_ONCE_SECONDS)

    def stop_servers(self, open_jobs: int | None) -> None:
        """Stop Valkey and Postgres, which must be last. `open_jobs` is the number of jobs that they keep."""
        self._observer.report(StopProgress(Phase.SERVERS, open=open_jobs))
        self._end(self._named("valkey", "postgres"), HURRY_SECONDS)

    def _await_worker(self, worker: Process, deadline: float, running: Callable[[], int | None]) -> bool:
        """Wait until the worker has ended; False if the stop is hurried."""
        while not worker.wait(POLL_SECONDS):
            if self._observer.hurry.is_set():
                return False
            left = deadline - time.monotonic()
            if left < -RELEASE_SECONDS:
                worker.kill()
            self._report(Phase.FINISH if left > 0 else Phase.RELEASE, running(), max(0.0, left))
        return True

    def _end(self, processes: Sequence[Process], hurry_seconds: float) -> None:
        """Signal these processes; kill those that do not end in time, or within `hurry_seconds` of being hurried."""
        for process in processes:
            process.terminate()
        began, hurried = time.monotonic(), None
        for process in processes:
            while not process.wait(POLL_SECONDS):
                now = time.monotonic()
                if hurried is None and self._observer.hurry.is_set():
                    hurried = now
                until = began + process.program.stop_seconds if hurried is None else hurried + hurry_seconds
                if now > until:
                    process.abort()

    def _named(self, *names: str) -> tuple[Process, ...]:
        return tuple(process for name, process in self._processes.items() if name.partition("-")[0] in names)

    def _report(self, phase: Phase, running: int | None = None, seconds_left: float = 0.0) -> None:
        self._observer.report(StopProgress(phase, running, seconds_left=seconds_left))
