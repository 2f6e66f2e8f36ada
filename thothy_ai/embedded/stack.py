"""`EmbeddedStack`: the whole service on one machine, in one home: started, supervised and stopped.

$THOTHY_HOME/  stack.lock   held while a stack runs        stack.env   its URLs and passwords, 0600, while it runs
               postgres/    data and password, kept        logs/       one file per process
               valkey/      data, kept                     engine.sock, unless that path is too long for a socket
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from pydantic import SecretStr

from thothy_ai.db.schema import migrate
from thothy_ai.embedded.endpoint import engine_endpoint, remove_socket
from thothy_ai.embedded.postgres import Postgres
from thothy_ai.embedded.process import Process, Program
from thothy_ai.embedded.readiness import Readiness
from thothy_ai.embedded.supervisor import Patience, Supervisor
from thothy_ai.embedded.valkey import Valkey
from thothy_ai.errors import StackRunningError
from thothy_ai.settings import PREFIX, STACK_ENV, Settings

SERVICES = ("engine", "reaper", "dispatcher", "worker")  # in the order of their start
SHARED_KEYS = ("database_url", "redis_url", "engine_url", "engine_token", "model", "kinds")
ENGINE_READY_SECONDS = 900  # a large model is read from a slow disk
READY_SECONDS = 60
RELEASE_SECONDS = 30  # past its shutdown deadline, for a worker to record what it releases, even in a slow Postgres


class EmbeddedStack:
    """Valkey, Postgres and the service's processes: ready once the context is entered, ended once it is left.

    `services` is a subset of `SERVICES`. Raises `StackRunningError` if a stack already runs in this home,
    `ServiceStartError` if a part does not start, `ConfigError` if the model or a wheel is missing.
    """

    def __init__(
        self, settings: Settings, *, services: Sequence[str] = SERVICES, patience: Patience | None = None
    ) -> None:
        self.home = settings.home.absolute()
        self.settings = settings
        self.postgres = Postgres(self.home / "postgres", log=self._log("postgres"))
        self.valkey = Valkey(self.home / "valkey", log=self._log("valkey"))
        self._services = [name for name in SERVICES if name in services]
        self._supervisor = Supervisor(patience)
        self._undo = contextlib.ExitStack()

    def start(self) -> Self:
        """Start everything and wait until it is ready; on failure, stop what has started."""
        if "engine" in self._services:
            self.settings.require_model()
        with contextlib.ExitStack() as undo:
            self._start_servers(undo)
            self._start_services(undo)
            self._undo = undo.pop_all()
        return self

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until stopped; False when `timeout` seconds passed first.

        Raises `ServiceStartError` when a process has ended too often to be restarted.
        """
        return self._supervisor.wait(timeout)

    def pids(self) -> dict[str, int | None]:
        """The process ids at this moment, by name."""
        return self._supervisor.pids()

    def stop(self) -> None:
        """Stop worker, dispatcher, reaper, engine, Valkey and Postgres, in this order; the data is kept."""
        self._undo.close()

    def _start_servers(self, undo: contextlib.ExitStack) -> None:
        self.home.mkdir(parents=True, exist_ok=True)
        undo.enter_context(_locked(self.home))
        undo.callback(self.postgres.stop)
        self.postgres.start()
        undo.callback(self.valkey.stop)
        self.valkey.start()
        self.settings = self._with_urls()
        migrate(self.settings)
        undo.enter_context(_announced(self.settings))

    def _start_services(self, undo: contextlib.ExitStack) -> None:
        undo.callback(self._supervisor.stop)
        for server in (self.postgres, self.valkey):
            self._supervisor.add(server.process)
        early = [name for name in self._services if name != "worker"]  # they start in parallel
        self._start_together(early)
        self._start_together([name for name in self._services if name == "worker"])
        self._supervisor.watch()

    def _start_together(self, names: Sequence[str]) -> None:
        processes = [Process(self._program(name)) for name in names]
        for process in processes:
            process.spawn()
            self._supervisor.add(process)
        for process in processes:
            process.wait_ready()

    def _program(self, name: str) -> Program:
        engine = name == "engine"
        arguments = ("--model", str(self.settings.model), "--url", self.settings.require_engine_url()) if engine else ()
        return Program(
            name=name,
            argv=(sys.executable, "-P", "-m", "thothy_ai.cli", name, *arguments),  # -P: not from the current folder
            env=self.settings.environment() | {f"{PREFIX}METRICS_PORT": str(self._metrics_port(name))},
            log=self._log(name),
            ready=Readiness(self.postgres, self.valkey, self.settings).of(name),
            ready_seconds=ENGINE_READY_SECONDS if engine else READY_SECONDS,
            stop_seconds=self.settings.shutdown_deadline_seconds + RELEASE_SECONDS if name == "worker" else 15,
        )

    def _metrics_port(self, name: str) -> int:
        """One port per process, counted up from the configured one."""
        port = self.settings.metrics_port
        return port + SERVICES.index(name) if port else 0

    def _with_urls(self) -> Settings:
        model, endpoint = self.settings.model, engine_endpoint(self.home)
        return self.settings.model_copy(
            update={
                "home": self.home,
                "database_url": SecretStr(self.postgres.url),
                "redis_url": SecretStr(self.valkey.url),
                "engine_url": endpoint.url,
                "engine_token": SecretStr(endpoint.token) if endpoint.token else None,
                "model": model.absolute() if model else None,
            }
        )

    def _log(self, name: str) -> Path:
        return self.home / "logs" / f"{name}.log"

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


@contextlib.contextmanager
def _locked(home: Path) -> Iterator[None]:
    """Hold the home's lock, which ends with the process; files that a killed stack left behind are removed."""
    with (home / "stack.lock").open("a+", encoding="ascii") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            raise StackRunningError(f"a stack already runs in {home} (process {lock.read().strip()})") from None
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        _remove_leftovers(home)
        try:
            yield
        finally:
            _remove_leftovers(home)
            lock.truncate(0)


def _remove_leftovers(home: Path) -> None:
    (home / STACK_ENV).unlink(missing_ok=True)
    remove_socket(home)


def _quoted(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


@contextlib.contextmanager
def _announced(settings: Settings) -> Iterator[None]:
    """Publish the addresses for other commands in this home."""
    wanted = {f"{PREFIX}{name.upper()}" for name in SHARED_KEYS}
    lines = [f"{name}={_quoted(value)}\n" for name, value in settings.environment().items() if name in wanted]
    file = settings.home / STACK_ENV
    fresh = file.with_suffix(".new")
    fresh.unlink(missing_ok=True)
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as opened:
        opened.writelines(lines)
    fresh.rename(file)
    try:
        yield
    finally:
        file.unlink(missing_ok=True)
