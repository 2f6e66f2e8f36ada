"""`EmbeddedStack`: the whole service on one machine, in one home: started, supervised and stopped.

$THOTHY_HOME/  stack.lock   held while a stack runs        stack.env   its URLs and passwords, 0600, while it runs
               postgres/    data and password, kept        logs/       one file per process
               valkey/      data, kept                     engine.sock, unless that path is too long for a socket

Each engine has a worker. If there are several engines, their processes, logs and sockets are numbered.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Self
from uuid import UUID

from pydantic import SecretStr

from thothy_ai.db.migration import migrate
from thothy_ai.embedded.home import announced, locked, unusable
from thothy_ai.embedded.logs import role_of
from thothy_ai.embedded.open_jobs import OpenJobs
from thothy_ai.embedded.placement import ANYWHERE, Pair, Placement, pairs
from thothy_ai.embedded.postgres import Postgres
from thothy_ai.embedded.process import Process, Program, Startable, service_argv
from thothy_ai.embedded.readiness import ENGINE_READY_SECONDS, Readiness
from thothy_ai.embedded.shutdown import Shutdown, StopObserver, Unobserved
from thothy_ai.embedded.supervisor import Cleanup, Patience, Supervisor
from thothy_ai.embedded.valkey import Valkey
from thothy_ai.errors import DatabaseError
from thothy_ai.foreign import is_foreign
from thothy_ai.settings import PREFIX, Settings

SERVICES = ("engine", "reaper", "dispatcher", "worker")  # in starting order
DOOR = "serve"  # over HTTP; started only on request
READY_SECONDS = 60
DEADLINE_SECONDS = 5.0  # for running jobs to finish when the stack is stopped, unless the settings say otherwise
END_SECONDS = 5.0  # for a process that has nothing left to do
HadBegun = Callable[[Sequence[str], UUID | None, Sequence[str]], bool]


class EmbeddedStack(Startable):
    """Valkey, Postgres and the service's processes: ready once the context is entered, ended once it is left.

    `services` is a subset of `SERVICES` and the `DOOR`. For each of `engines` there is an engine and a worker. With
    `null`, the engines answer without a model. Each engine has the entailment model in the folder `verifier`, and loads
    `adapters`, which are folders by name. `observer` receives the progress of a stop. With `clean`, jobs that an
    earlier stack left open are cancelled before anything can run. `begun` says whether killed engines at these URLs had
    begun a request of a session (`engine.serving.client.had_begun`); without it, they count as having begun every
    running job.

    Raises `StackRunningError` if a stack already runs in this home, `ServiceStartError` if a part does not start,
    `ConfigError` if the model or a wheel is missing.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        services: Sequence[str] = SERVICES,
        engines: Sequence[Placement] = (ANYWHERE,),
        patience: Patience | None = None,
        observer: StopObserver | None = None,
        null: bool = False,
        verifier: Path | None = None,
        adapters: Mapping[str, Path] | None = None,
        clean: bool = False,
        begun: HadBegun = lambda _urls, _session_id, _request_ids: True,
    ) -> None:
        self.home = settings.home.absolute()
        self.settings = settings
        self.postgres = Postgres(self.home / "postgres", log=self._log("postgres"))
        self.valkey = Valkey(self.home / "valkey", log=self._log("valkey"))
        self.cancelled = 0  # jobs that an earlier stack left open
        self._services = [name for name in (*SERVICES, DOOR) if name in services]
        self._placements = engines
        self._pairs: tuple[Pair, ...] = ()
        self._null = null
        self._verifier = verifier
        self._adapters = adapters or {}
        self._clean = clean
        self._begun = begun
        self._supervisor = Supervisor(patience)
        self._processes: dict[str, Process] = {}
        self._shutdown = Shutdown(self._processes, observer or Unobserved())
        self._undo = contextlib.ExitStack()

    def start(self) -> Self:
        """Start everything and wait until it is ready. On failure, stop the parts that have started."""
        if "engine" in self._services and not self._null:
            self.settings.require_model()
        with contextlib.ExitStack() as undo:
            try:
                jobs = self._start_servers(undo)
            except OSError as error:
                raise unusable(self.home, error) from error
            for server in (self.postgres, self.valkey):
                self._supervisor.add(server.process)
            engines = [self._engine_program(pair) for pair in self._pairs if "engine" in self._services]
            others = [self._program(name, self.settings) for name in self._services if name not in {"engine", "worker"}]
            workers = [self._program(pair.worker, pair.settings, pair.number) for pair in self._pairs]
            self._start_together([*engines, *others])
            release = {pair.worker: partial(jobs.release, pair.settings.engine_name) for pair in self._pairs}
            self._start_together(workers if "worker" in self._services else [], release)
            self._supervisor.watch()
            self._undo = undo.pop_all()
        return self

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until stopped; False if `timeout` seconds pass first.

        Raises `ServiceStartError` when a process has ended too often to be restarted.
        """
        return self._supervisor.wait(timeout)

    def pids(self) -> dict[str, int | None]:
        """The current process ids, by name."""
        return self._supervisor.pids()

    def stop(self) -> None:
        """Stop all processes, engines and workers before servers. The data is kept, and no job stays claimed."""
        self._undo.close()

    def _start_servers(self, undo: contextlib.ExitStack) -> OpenJobs:
        self.home.mkdir(parents=True, exist_ok=True)
        undo.enter_context(locked(self.home))
        for name, server in (("postgres", self.postgres), ("valkey", self.valkey)):
            undo.callback(server.stop)
            server.start()
            self._processes[name] = server.process
        self.settings = self._with_urls()
        migrate(self.settings)
        jobs = OpenJobs(self.settings)
        undo.callback(self._stop_servers, jobs)
        urls = [pair.settings.require_engine_url() for pair in self._pairs]
        urls = ["" if is_foreign(url) else url for url in urls]  # a server over HTTP leaves no record here
        jobs.requeue_killed(partial(self._begun, urls))
        jobs.end_sessions()
        self.cancelled = jobs.cancel() if self._clean else 0
        undo.enter_context(announced(self.settings))
        undo.callback(self._stop_services, jobs)
        return jobs

    def _stop_services(self, jobs: OpenJobs) -> None:
        self._shutdown.begin()
        self._supervisor.release()
        self._shutdown.stop_services(self.settings.shutdown_deadline_seconds, jobs.running)

    def _stop_servers(self, jobs: OpenJobs) -> None:
        with contextlib.suppress(DatabaseError):  # otherwise the next start does it
            jobs.requeue()  # no process works on a job any more, even if a killed one left it claimed
        left = jobs.count()
        jobs.close()
        self._shutdown.stop_servers(left)

    def _start_together(self, programs: Sequence[Program], clean_ups: Mapping[str, Cleanup] | None = None) -> None:
        for program in programs:
            self._processes[program.name] = process = Process(program)
            process.spawn()
            self._supervisor.add(process, (clean_ups or {}).get(program.name))
        for program in programs:
            self._processes[program.name].wait_ready(beside=self._processes.values())

    def _engine_program(self, pair: Pair) -> Program:
        plain, where = self._program(pair.engine, pair.settings, pair.number), pair.placement
        model = ("--null",) if self._null else ("--model", str(self.settings.model))
        beside = ("--verifier", str(self._verifier.absolute())) if self._verifier else ()
        loaded = (
            text for name, folder in self._adapters.items() for text in ("--adapter", f"{name}={folder.absolute()}")
        )
        argv = service_argv(
            "engine", *model, *beside, *loaded, "--url", pair.settings.require_engine_url(), *where.arguments
        )
        return replace(plain, argv=argv, env={**plain.env, **where.environment}, ready_seconds=ENGINE_READY_SECONDS)

    def _program(self, name: str, settings: Settings, number: int = 0) -> Program:
        service = role_of(name)
        engines = "engine" in self._services
        port = self.settings.metrics_port
        if port and number:  # from the configured port on: one port per service, then two for each further pair
            port += len((*SERVICES, DOOR)) + 2 * (number - 1) + (service == "worker")
        elif port:
            port += (*SERVICES, DOOR).index(service)
        readiness = Readiness(self.postgres, self.valkey, self.settings, len(self._pairs), engines=engines)
        return Program(
            name=name,
            argv=service_argv(service),
            env=settings.environment() | {f"{PREFIX}METRICS_PORT": str(port)},
            log=self._log(name),
            ready=readiness.of(service, settings),
            ready_seconds=READY_SECONDS,
            stop_seconds=END_SECONDS,
        )

    def _with_urls(self) -> Settings:
        model = self.settings.model
        settings = self.settings.model_copy(
            update={
                "home": self.home,
                "database_url": SecretStr(self.postgres.url),
                "redis_url": SecretStr(self.valkey.url),
                "model": model.absolute() if model else None,
                "shutdown_deadline_seconds": (
                    self.settings.shutdown_deadline_seconds
                    if "shutdown_deadline_seconds" in self.settings.model_fields_set
                    else DEADLINE_SECONDS
                ),
            }
        )
        self._pairs = pairs(settings, self.home, self._placements)
        first = self._pairs[0].settings
        tokens = (
            f"{pair.settings.engine_name}={pair.settings.reveal_engine_token()}"
            for pair in self._pairs
            if pair.settings.engine_name and pair.settings.engine_token
        )
        return settings.model_copy(
            update={
                "engine_url": first.engine_url,
                "engine_token": first.engine_token,
                "engine_tokens": SecretStr(",".join(tokens)) if first.engine_token else None,
            }
        )

    def _log(self, name: str) -> Path:
        return self.home / "logs" / f"{name}.log"
