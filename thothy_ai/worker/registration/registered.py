"""The engine's side: starts the registrar, reports the engine's state to it, and ends the engine if it is refused."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import IO, NoReturn
from uuid import uuid4

from thothy_ai.engine.api import EngineStats
from thothy_ai.engine.api.adapters import adapters_of
from thothy_ai.engine.api.identity import identity_of
from thothy_ai.engine.api.options import EngineOptions
from thothy_ai.engine.process.gpus import Gpu, all_gpus, visible_gpus
from thothy_ai.engine.process.main import CANNOT_START
from thothy_ai.settings import Settings
from thothy_ai.worker.registration.messages import MESSAGES, EngineEnded, Message, Ready, Registration, Stopping

log = logging.getLogger(__name__)

MODULE = "thothy_ai.worker.registration.registrar"
FIRST_PAUSE, MAX_PAUSE = 0.5, 30.0  # seconds, before a registrar that died is replaced
HEALTHY_SECONDS, MAX_FAILURES = 60.0, 5  # a registrar that runs this long works; this many in a row may fail
LAST_SECONDS = 2.0  # for the registrar to record the end, before this process ends
CLOCK_TICKS = 22  # the field of /proc/PID/stat that has the process' start, in ticks since boot


@contextmanager
def registered(options: EngineOptions, settings: Settings) -> Iterator[tuple[EngineOptions, Registrations]]:
    """Options with a session id, and the observer of the engine's run; its end is recorded when the block is left."""
    options = replace(options, session_id=str(uuid4()))
    registrations = Registrations(_registration(options), settings.environment())
    registrations.start()
    try:
        yield options, registrations
    except SystemExit as error:
        registrations.send(EngineEnded.of(error.code if isinstance(error.code, int) else 1))
        raise
    except KeyboardInterrupt:
        registrations.send(EngineEnded.of(0))
        raise
    finally:
        registrations.close()


class Registrations:
    """Implements the engine's `Observer`. Keeps a registrar running, and resends all messages to a new one."""

    def __init__(self, registration: Registration, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self._lock = threading.Lock()  # guards the fields below
        self._sent: list[Message] = [registration]
        self._process: subprocess.Popen[bytes] | None = None
        self._closing = False

    def start(self) -> None:
        """Start the registrar, and a thread that replaces it when it dies."""
        threading.Thread(target=self._run, name="engine-registrar", daemon=True).start()

    def ready(self, url: str) -> None:
        self.send(Ready(url, time.monotonic()))

    def stopping(self) -> None:
        self.send(Stopping())

    def ended(self, code: int, stats: EngineStats) -> None:
        """Report its end, and wait shortly until that is recorded: the process may be killed from now on."""
        self.send(EngineEnded.of(code, stats.core))
        self.close()

    def send(self, message: Message) -> None:
        """Pass a message on, later if the registrar is not running; nothing is sent after the end."""
        with self._lock:
            if not isinstance(self._sent[-1], EngineEnded):
                self._sent.append(message)
                _write(self._process, message)

    def close(self) -> None:
        """Let the registrar finish, for a short time."""
        with self._lock:
            self._closing, process = True, self._process
        if process is not None:
            with suppress(OSError):
                _stdin(process).close()
            with suppress(subprocess.TimeoutExpired):
                process.wait(LAST_SECONDS)

    def _run(self) -> None:
        """Start a registrar, and another one when it dies.

        Without a registrar for long, an engine that does not serve yet ends, since it would get no jobs. A serving
        engine keeps its jobs.
        """
        pause, failures = FIRST_PAUSE, 0
        while (process := self._spawned()) is not None:
            began = time.monotonic()
            refusal = process.stdout.read() if process.stdout else b""  # until it ends
            if refusal:
                _refuse(refusal.decode(errors="replace"))
            code = process.wait()
            if self._closing:
                return
            if time.monotonic() - began >= HEALTHY_SECONDS:
                pause, failures = FIRST_PAUSE, 0
            failures += 1
            with self._lock:
                serves = any(isinstance(message, Ready) for message in self._sent)
            if failures >= MAX_FAILURES and not serves:
                _refuse(f"the registrar ended {failures} times in a row, with status {code}")
            log.warning("the registrar ended with status %d; a new one starts in %g s", code, pause)
            time.sleep(pause)
            pause = min(2 * pause, MAX_PAUSE)

    def _spawned(self) -> subprocess.Popen[bytes] | None:
        """A new registrar with all messages sent so far; None once the engine has ended."""
        with self._lock:
            if self._closing:
                return None
            self._process = process = _popen(self._environment)
            for message in self._sent:
                _write(process, message)
            return process


def _popen(environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    path = os.pathsep.join(str(Path(entry).absolute()) for entry in sys.path if entry)
    return subprocess.Popen(
        [sys.executable, "-P", "-m", MODULE],
        env={**os.environ, **environment, "PYTHONPATH": path},  # imports as here
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C, and a signal to the engine's process group, must not keep it from its work
    )


def _write(process: subprocess.Popen[bytes] | None, message: Message) -> None:
    if process is not None:
        with suppress(OSError, ValueError):  # the registrar has died, or was closed
            _stdin(process).write(MESSAGES.encode(message))
            _stdin(process).flush()


def _stdin(process: subprocess.Popen[bytes]) -> IO[bytes]:
    if process.stdin is None:
        raise OSError("the registrar has no pipe")
    return process.stdin


def _refuse(why: str) -> NoReturn:
    """End this process, which would get no jobs: its name belongs to another engine, or nothing records it."""
    sys.stderr.write(f"thothy engine: {why}\n")
    sys.stderr.flush()
    os._exit(CANNOT_START)


def _registration(options: EngineOptions) -> Registration:
    identity = identity_of(options)
    gpus: tuple[Gpu, ...] = ()  # GPUs that the engine will use
    if not options.null and options.device != "cpu":
        number = options.device.rpartition(":")[2]
        first = int(number) if number.isdigit() else 0
        gpus = visible_gpus(all_gpus())[first : first + options.tensor_parallel]
    return Registration(
        session_id=options.session_id or "",
        engine_name=identity.name,
        machine=identity.machine,
        model_name=identity.model_name,
        device=gpus[0].name if gpus else "none" if options.null else "cpu",
        devices=tuple(gpu.uuid for gpu in gpus),
        capacity=options.max_rows or 0,
        started=time.monotonic() - _process_age(),
        adapters=tuple(adapters_of(options.adapters)),
    )


def _process_age() -> float:
    """Seconds since this process began, imports included; 0 where the system does not say."""
    try:
        stat = Path("/proc/self/stat").read_text(encoding="ascii", errors="replace")
        ticks = int(stat.rpartition(")")[2].split()[CLOCK_TICKS - 3])
        return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK"))
    except (OSError, ValueError, IndexError, AttributeError):
        return 0.0
