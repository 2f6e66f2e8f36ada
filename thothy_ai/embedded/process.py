"""`Process`: one program of the stack, from spawn to stop. It never outlives the process that started it.

The kernel sends the death signal when the *thread* that forked ends. This module therefore forks on one thread only,
which lives as long as the process.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent import futures
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from typing import ClassVar, Self

from thothy_ai.embedded.cause import describe_end, describe_os_error
from thothy_ai.errors import ServiceStartError

PARENT_WATCH = Path(__file__).with_name("parent_watch.py")
FIRST_PAUSE = 0.02  # seconds between the first checks of a starting program; later pauses grow
MAX_PAUSE = 0.25
GROWTH = 1.25
ABORT_SECONDS = 5.0
MAX_LOG_BYTES = 32 * 2**20
PORT_TAKEN = "Address already in use"


@dataclass(frozen=True)
class Program:
    """What to run, and how. `ready` is called until it returns True; it must not block for long."""

    name: str
    argv: tuple[str, ...]
    log: Path
    ready: Callable[[], bool]
    env: Mapping[str, str] = field(default_factory=dict, repr=False)  # contains passwords
    user: tuple[int, int] | None = None  # (uid, gid)
    ready_seconds: float = 60
    stop_signal: signal.Signals = signal.SIGTERM
    stop_seconds: float = 15
    abort_signal: signal.Signals = signal.SIGKILL  # ends it at once, without loss of data
    death_signal: signal.Signals = signal.SIGKILL  # sent when this process dies


def service_argv(service: str, *arguments: str) -> tuple[str, ...]:
    """The command line that runs `thothy SERVICE ARGUMENTS` with this interpreter."""
    return sys.executable, "-P", "-m", "thothy_ai.cli", service, *arguments  # -P: ignore the current folder


class Startable(ABC):
    """Something that runs for the block of a `with` statement."""

    @abstractmethod
    def start(self) -> Self: ...

    @abstractmethod
    def stop(self) -> None: ...

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


class Process:
    """One running `Program`. Not safe to share between threads without a lock."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._popen: subprocess.Popen[bytes] | None = None
        self._log_start = 0  # bytes in the log from earlier runs

    @property
    def pid(self) -> int | None:
        """The process id; None before the start."""
        return self._popen.pid if self._popen else None

    @property
    def exit_code(self) -> int | None:
        """The exit status (negative: a signal); None before the start and while the program runs."""
        return self._popen.poll() if self._popen else None

    @property
    def alive(self) -> bool:
        return self._popen is not None and self._popen.poll() is None

    def spawn(self) -> None:
        """Start the program without waiting until it is ready. Raises `ServiceStartError`."""
        log = self.program.log
        self._log_start = log.stat().st_size if log.exists() else 0
        order = _Spawner.shared().order(self.program)
        try:
            futures.wait([order])
        finally:  # the program starts even if a signal interrupts the wait
            try:
                self._popen = order.result()
            except OSError as error:
                message = f"{self.program.name} cannot be started: {describe_os_error(error)}"
                raise ServiceStartError(message) from error

    def start(self) -> None:
        """Start the program and wait until it is ready. Raises `ServiceStartError`, with the cause from its log."""
        try:
            self.spawn()
            self.wait_ready()
        except BaseException:  # including Ctrl-C during the spawn, when the program may already run
            self.stop()
            raise

    def wait_ready(self, beside: Iterable[Process] = ()) -> None:
        """Wait until the program is ready. Raises `ServiceStartError` if it is late, or it or one of `beside` ends."""
        until = time.monotonic() + self.program.ready_seconds
        pause = FIRST_PAUSE
        while not self.program.ready():
            if ended := next((process for process in (*beside, self) if not process.alive), None):
                raise ServiceStartError(ended.end_line())
            if time.monotonic() > until:
                limit = f"{self.program.ready_seconds:g} s"
                raise ServiceStartError(f"{self.program.name} was not ready within {limit} (log: {self.program.log})")
            time.sleep(pause)
            pause = min(pause * GROWTH, MAX_PAUSE)

    def stop(self) -> None:
        """Send the stop signal and wait; kill the process group if it does not end. No effect once it has ended."""
        try:
            self.terminate()
            if not self.wait(self.program.stop_seconds):
                self.abort()
        except BaseException:  # on a second Ctrl-C, stop at once
            self.kill()
            raise

    def terminate(self) -> None:
        """Send the stop signal. No effect once it has ended."""
        if self._popen is not None:
            self._popen.send_signal(self.program.stop_signal)

    def wait(self, seconds: float) -> bool:
        """Wait at most `seconds` for the program's end; returns whether it has ended."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            if self._popen is not None:
                self._popen.wait(seconds)
        return not self.alive

    def abort(self) -> None:
        """Send the abort signal; kill the program if that does not end it."""
        if self._popen is not None and self.program.abort_signal is not signal.SIGKILL:
            self._popen.send_signal(self.program.abort_signal)
            self.wait(ABORT_SECONDS)
        if self.alive:
            self.kill()

    def kill(self) -> None:
        """Kill the program and its process group."""
        if self._popen is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._popen.pid, signal.SIGKILL)
        self._popen.wait()

    def bound_log(self) -> None:
        """Rotate a large log: copy it over the previous copy and truncate it. The writer continues to append.

        Lines written between copying and truncating are lost. A log that cannot be rotated is left alone.
        """
        log = self.program.log
        with contextlib.suppress(OSError):
            if log.stat().st_size <= MAX_LOG_BYTES:
                return
            with contextlib.suppress(OSError):  # on a full disk, truncate all the same
                shutil.copyfile(log, log.with_name(f"{log.name}.1"))
            os.truncate(log, 0)
            self._log_start = 0

    def end_line(self) -> str:
        """One line that says how the program ended, with the cause if its log states one."""
        log = self.program.log
        return f"{self.program.name} {describe_end(self.exit_code, log, self._log_start)} (log: {log})"

    def wrote(self, text: str) -> bool:
        """Whether this run of the program wrote `text` to its log."""
        with self.program.log.open("rb") as log:
            log.seek(self._log_start)
            return text.encode() in log.read()


class _Spawner:
    """The only thread that forks."""

    _shared: ClassVar[_Spawner | None] = None
    _lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self) -> None:
        self.owner = os.getpid()
        self._orders: SimpleQueue[tuple[Program, futures.Future[subprocess.Popen[bytes]]]] = SimpleQueue()
        threading.Thread(target=self._run, name="thothy-spawner", daemon=True).start()

    @classmethod
    def shared(cls) -> _Spawner:
        with cls._lock:
            if cls._shared is None or cls._shared.owner != os.getpid():
                cls._shared = cls()
            return cls._shared

    def order(self, program: Program) -> futures.Future[subprocess.Popen[bytes]]:
        order: futures.Future[subprocess.Popen[bytes]] = futures.Future()
        self._orders.put((program, order))
        return order

    def _run(self) -> None:
        while True:
            program, order = self._orders.get()
            try:
                order.set_result(_popen(program))
            except OSError as error:
                order.set_exception(error)


def _popen(program: Program) -> subprocess.Popen[bytes]:
    uid, gid = program.user or (-1, -1)
    parent_watch = (sys.executable, "-I", "-S", str(PARENT_WATCH))
    ids = (str(value) for value in (os.getpid(), int(program.death_signal), uid, gid))
    program.log.parent.mkdir(parents=True, exist_ok=True)
    with program.log.open("ab") as log:
        return subprocess.Popen(
            [*parent_watch, *ids, *program.argv],
            env={**os.environ, **program.env},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C goes to this process alone, which stops the others in order
        )


def free_port() -> int:
    """A TCP port of 127.0.0.1 that was free a moment ago, chosen like those of `free_ports`."""
    return free_ports(1)


def free_ports(count: int) -> int:
    """The first of `count` consecutive TCP ports of 127.0.0.1 that were free a moment ago.

    They lie below Linux' range of ephemeral ports, so that no outgoing connection takes one of them meanwhile.
    """
    while True:
        first = 10_000 + secrets.randbelow(32_768 - 10_000 - count)
        if all(is_free(port) for port in range(first, first + count)):
            return first


@contextlib.contextmanager
def reserved_ports(firsts: Iterable[int], count: int) -> Iterator[int | None]:
    """Reserve the first of `firsts` that begins a range of `count` free TCP ports of 127.0.0.1; None if none does.

    The last port of the range is bound during the block and not used otherwise: of two stacks that start at the same
    moment, one binds it and the other tries the next range. The stack's processes use the ports before it.
    """
    for first in firsts:
        with socket.socket() as last:
            if _binds(last, first + count - 1) and all(map(is_free, range(first, first + count - 1))):
                yield first
                return
    yield None


def is_free(port: int) -> bool:
    """Whether nothing is bound to a TCP port of 127.0.0.1 at this moment."""
    with socket.socket() as probe:
        return _binds(probe, port)


def _binds(probe: socket.socket, port: int) -> bool:
    try:
        probe.bind(("127.0.0.1", port))
    except OSError:
        return False
    return True


def accepts(host: str, port: int) -> bool:
    """Whether a process listens there."""
    try:
        socket.create_connection((host, port), timeout=1).close()
    except OSError:
        return False
    return True
