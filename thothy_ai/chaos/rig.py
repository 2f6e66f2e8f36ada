"""`Rig`: the stack of a chaos run in its own home, with access to every server and process in order to break it.

worker-1  ──────────────────────────▶ Postgres, Valkey without persistence, engine-1
worker-2  ─skewed clock─▶ proxies ──▶ the same, or engine-2
dispatcher-1, dispatcher-2, reaper    one supervisor restarts what ends, at once and without limit

An engine and its worker form a machine. A lost machine is not restarted; a new one takes its place.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from pydantic import SecretStr
from redis import Redis
from redis.exceptions import RedisError

from thothy_ai.chaos.clock import SkewedClock
from thothy_ai.chaos.options import DISPATCHERS, MIN_WORKERS, NULL_LATENCY, QUICK, SLOW_WORKER, ChaosOptions
from thothy_ai.chaos.proxies import Proxies
from thothy_ai.db.connect import make_engine
from thothy_ai.db.migration import migrate
from thothy_ai.db.statements import statement
from thothy_ai.embedded import Postgres, Valkey
from thothy_ai.embedded.process import Process, Program, free_port
from thothy_ai.embedded.supervisor import Patience, Supervisor
from thothy_ai.errors import ServiceStartError
from thothy_ai.queue.dispatches import worker_silence
from thothy_ai.settings import Settings

UNLIMITED = Patience(failures=sys.maxsize, first_delay=0.1, max_delay=0.1, check_every=0.1)
START_SECONDS = 60
ENGINE_START_SECONDS = 900  # a large model is read from a slow disk
LISTENS = 2  # connections on which a worker waits for messages
RESTARTS = 20  # attempts to start Postgres after a crash, while its children may still be running


class Rig:
    """A context manager: everything is ready once it is entered; all processes and ports are gone once it is left."""

    def __init__(self, home: Path, options: ChaosOptions) -> None:
        self.home = home
        self.postgres = Postgres(home / "postgres", log=self._log("postgres"))
        self.valkey = Valkey(home / "valkey", log=self._log("valkey"), durable=False)
        self.proxies = Proxies()
        self.clock = SkewedClock(home)
        self.can_skew_clocks = False
        self.settings = Settings.load(home=home, **QUICK)
        self.engines = [f"engine-{number}" for number in range(1, options.engines + 1)]
        workers = range(1, max(options.engines, MIN_WORKERS) + 1)
        self.workers = {f"worker-{number}": self.engines[(number - 1) % options.engines] for number in workers}
        self.metrics_ports = {name: free_port() for name in self.workers}
        self._options = options
        self._last_machine = options.engines
        self._processes: dict[str, Process] = {}
        self._supervisor = Supervisor(UNLIMITED)
        self._undo = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as undo:
            undo.enter_context(self.proxies)
            undo.callback(self.postgres.stop)
            self.postgres.start()
            undo.callback(self.valkey.stop)
            self.valkey.start()
            self.settings = self.settings.model_copy(
                update={
                    "database_url": SecretStr(self.postgres.url),
                    "redis_url": SecretStr(self.valkey.url),
                    "engine_url": self._engine_url(self.engines[0]),
                }
            )
            self.can_skew_clocks = self.clock.build()
            migrate(self.settings)
            undo.callback(self._supervisor.stop)
            for name in (*self.engines, "reaper", *DISPATCHERS, *self.workers):
                self._start_process(name)
            self._supervisor.watch()
            limit = ENGINE_START_SECONDS if self._options.model else START_SECONDS
            _wait(self._ready, limit, f"the stack is not ready (logs: {self.home / 'logs'})")
            self._undo = undo.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._undo.close()

    def pid(self, name: str) -> int:
        """The current process id of a service; 0 while it is down."""
        process = self._processes[name]
        return process.pid or 0 if process.alive else 0

    def signal(self, name: str, number: signal.Signals) -> int:
        """Send a signal to a service; returns its process id, 0 when it is down."""
        pid = self.pid(name)
        if pid:
            send(pid, number)
        return pid

    def lose_machine(self, engine: str) -> str:
        """End an engine and its workers for good, and start another machine; returns the new engine's name."""
        workers = [name for name, beside in self.workers.items() if beside == engine]
        lost = [self._processes[name] for name in (engine, *workers)]
        for process in lost:
            self._supervisor.release_one(process)
            kill_with_children(process)
        for name in workers:
            del self.workers[name]
        self.engines.remove(engine)
        self._last_machine += 1
        engine, worker = f"engine-{self._last_machine}", f"worker-{self._last_machine}"
        self.engines.append(engine)
        self.workers[worker] = engine
        self.metrics_ports[worker] = free_port()
        for name in (engine, worker):
            self._start_process(name)
        return engine

    def redis(self) -> Redis:
        """A client connected to the server directly, without a proxy."""
        return Redis.from_url(self.valkey.url, socket_timeout=2, socket_connect_timeout=2)

    def crash_postgres(self) -> None:
        """Stop Postgres without a checkpoint, like a power cut, and wait for its end."""
        send(self.postgres.process.pid or 0, signal.SIGQUIT)
        _wait(lambda: not self.postgres.process.alive, START_SECONDS, "Postgres does not end")

    def start_postgres(self) -> None:
        """Start Postgres again, with the same data and port."""
        for attempt in range(RESTARTS):
            try:
                return self.postgres.process.start()
            except ServiceStartError:
                if attempt == RESTARTS - 1:
                    raise
                time.sleep(0.2)
        return None

    def _start_process(self, name: str) -> None:
        arguments: tuple[str, ...] = ()
        if name.startswith("engine"):
            answers = ("--null", "--null-latency", str(NULL_LATENCY))
            model = self._options.model
            arguments = (*(("--model", str(model)) if model else answers), "--url", self._engine_url(name))
        self._processes[name] = process = Process(
            Program(
                name=name,
                argv=(sys.executable, "-m", "thothy_ai.cli", name.partition("-")[0], *arguments),
                env=self._environment(name),
                log=self._log(name),
                ready=lambda: True,
                stop_signal=signal.SIGKILL,  # at the end of a run, nothing is left to finish
            )
        )
        process.spawn()
        self._supervisor.add(process)

    def _environment(self, name: str) -> dict[str, str]:
        if name in self.engines:
            return self.settings.model_copy(update={"engine_name": name}).environment()
        if name not in self.workers:
            return self.settings.environment()
        url = self._engine_url(self.workers[name])
        changes: dict[str, Any] = {"metrics_port": self.metrics_ports[name], "engine_url": url}
        if name == SLOW_WORKER:
            postgres, valkey = self.postgres, self.valkey
            to_postgres, to_valkey = (self.proxies.open(("127.0.0.1", server.port)) for server in (postgres, valkey))
            changes |= {
                "database_url": SecretStr(postgres.url.replace(f":{postgres.port}/", f":{to_postgres}/")),
                "redis_url": SecretStr(valkey.url.replace(f":{valkey.port}/", f":{to_valkey}/")),
                "engine_url": f"tcp://127.0.0.1:{self.proxies.open(url.removeprefix('unix://'))}",
            }
        worker = self.settings.model_copy(update=changes).environment()
        return worker | (self.clock.environment() if name == SLOW_WORKER else {})

    def _engine_url(self, engine: str) -> str:
        return f"unix://{self.home / engine}.sock"

    def _ready(self) -> bool:
        """Whether all workers wait for messages, both leaders have sessions, and jobs are dispatched to the engines."""
        try:
            with self.redis() as redis:
                waiting = sum(client["cmd"] == "brpop" for client in redis.client_list())
        except RedisError:
            return False
        leaders = {"thothy-dispatcher", "thothy-reaper"}
        if waiting != LISTENS * len(self.workers) or not leaders <= self.postgres.sessions():
            return False
        engine = make_engine(self.settings, application="chaos", pool_size=1)
        try:
            with engine.connect() as connection:
                silence = {"worker_seconds": worker_silence(self.settings)}
                known = connection.execute(statement("queue/engines"), silence)
                return {row.name for row in known if row.ready and row.staffed} == set(self.engines)
        finally:
            engine.dispose()

    def _log(self, name: str) -> Path:
        return self.home / "logs" / f"{name}.log"


def send(pid: int, number: signal.Signals) -> None:
    """Send a signal to a process, if it still exists."""
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def kill_with_children(process: Process) -> None:
    """Kill a process and its children, like a power cut: none of them can report that another one ended."""
    pid = process.pid or 0
    send(pid, signal.SIGSTOP)
    for child in children(pid):
        send(child, signal.SIGKILL)
    process.kill()


def children(pid: int) -> list[int]:
    """The ids of all descendants of a process. Linux only."""
    try:
        found = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()]
        others = [int(entry.name) for entry in Path(f"/proc/{pid}/task").iterdir() if entry.name != str(pid)]
        for thread in others:
            found += map(int, Path(f"/proc/{pid}/task/{thread}/children").read_text(encoding="ascii").split())
    except OSError:
        return []
    return found + [grandchild for child in found for grandchild in children(child)]


def _wait(holds: Callable[[], bool], seconds: float, otherwise: str) -> None:
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            raise ServiceStartError(otherwise)
        time.sleep(0.1)
