"""Every command of compose.yaml as a plain process on a real Postgres and Valkey, with one job from end to end.

What a container would see comes from the compose program itself: commands, environment, secrets and health checks.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import psycopg
import pytest
import yaml
from redis import Redis

from tests.conftest import Services
from tests.support.compose import ROOT, configuration, environment_of
from tests.support.server_folder import server_folder
from thothy_ai.embedded.process import free_port
from thothy_ai.engine.checkpoint.bundled import bundled_model_path

STARTED = ("engine", "dispatcher", "reaper", "worker", "serve")  # as depends_on would
SECONDS = 600
OPTIONAL = {"thothy_forecast_publish_jobs"}  # exported if THOTHY_PUBLISH_BY is set
CHOSEN = """
THOTHY_LOG_LEVEL=WARNING
THOTHY_ENGINE_MAX_ROWS=4
THOTHY_ENGINE_KV_TOKENS=8192
THOTHY_ENGINE_MAX_CONTEXT=4096
THOTHY_MAX_ATTEMPTS=1
"""


def named_in_alerts() -> set[str]:
    """The metrics used in alert expressions. An alert on a metric that is never exported can never fire."""
    rules = yaml.safe_load((ROOT / "deploy/prometheus/alerts.yml").read_text())
    expressions = [rule["expr"] for group in rules["groups"] for rule in group["rules"]]
    named = {name for expression in expressions for name in re.findall(r"\bthothy_\w+", expression)}
    assert len(named) > 10
    return named


class Machine:
    """Processes with the commands and the environment of compose.yaml, with this machine's hosts and paths."""

    def __init__(self, database_url: str, redis_url: str, folder: Path) -> None:
        self.folder = folder
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        (folder / ".env").write_text(CHOSEN)
        self.services: dict[str, Any] = configuration(env_file=str(folder / ".env"))["services"]
        self._ports = {service: free_port() for service in STARTED}
        self.door = str(free_port())
        self._here = {
            **self._servers(urlsplit(database_url), urlsplit(redis_url)),
            "/run/secrets": str(folder),
            "/run/thothy": str(folder),
            "/opt/models": str(bundled_model_path().parent),
        }

    def _servers(self, database: Any, redis: Any) -> dict[str, str]:
        """The addresses in the URLs; their passwords are in files, as Compose mounts them."""
        (self.folder / "postgres_password").write_text(f"{database.password}\n")
        (self.folder / "redis_password").write_text(f"{redis.password}\n")
        (self.folder / "webhook_secrets").write_text("a secret of more than 24 characters\n")
        where = f"{database.hostname}:{database.port}{database.path}"
        return {"postgres:5432/thothy": where, "redis:6379": f"{redis.hostname}:{redis.port}"}

    def here(self, text: str, service: str) -> str:
        """A text of the container's, with this machine's hosts and paths."""
        port = {"9400": str(self._ports[service])} if service in self._ports else {}
        for there, here in (self._here | port).items():
            text = text.replace(there, here)
        return text

    def environment(self, service: str) -> dict[str, str]:
        given = environment_of(self.services[service])
        mapped = {name: self.here(value, service) for name, value in given.items()}
        return {**os.environ, **mapped, "THOTHY_METRICS_HOST": "127.0.0.1", "THOTHY_HOME": str(self.folder / "home")}

    def command_of(self, service: str) -> list[str]:
        """The service's command, with this interpreter in place of `thothy`, and a port of this machine."""
        program, *arguments = self.services[service]["command"]
        assert program == "thothy"
        arguments = [self.door if argument == "8000" else argument for argument in arguments]
        return [sys.executable, "-m", "thothy_ai.cli", *arguments]

    def run(self, *arguments: str, service: str = "migrate") -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "thothy_ai.cli", *arguments]
        environment = self.environment(service)
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=SECONDS)

    def start(self, service: str) -> None:
        with (self.folder / f"{service}.log").open("wb") as log:
            self.running[service] = subprocess.Popen(
                self.command_of(service), env=self.environment(service), stdout=log, stderr=subprocess.STDOUT
            )

    def log(self, service: str) -> str:
        return (self.folder / f"{service}.log").read_text()

    def wait_healthy(self, service: str) -> None:
        """Run the health check of compose.yaml until it passes."""
        until = time.monotonic() + SECONDS
        while not self._healthy(service):
            assert self.running[service].poll() is None, f"{service} ended: {self.log(service)}"
            assert time.monotonic() < until, f"{service} is not healthy: {self.log(service)}"
            time.sleep(0.2)

    def _healthy(self, service: str) -> bool:
        kind, *test = self.services[service]["healthcheck"]["test"]
        assert kind == "CMD"
        if test[0] == "thothy":
            return self.run(*test[1:], service=service).returncode == 0
        test = [sys.executable if word == "python" else word for word in test]
        test = [self.here(word, service) for word in test]
        return subprocess.run(test, capture_output=True, check=False).returncode == 0

    def metrics(self, service: str) -> str:
        code = "import sys, urllib.request as r; sys.stdout.write(r.urlopen(sys.argv[1]).read().decode())"
        url = f"http://127.0.0.1:{self._ports[service]}/metrics"
        return subprocess.run([sys.executable, "-c", code, url], capture_output=True, text=True, check=True).stdout

    def families(self) -> set[str]:
        """Names of all metrics that the running services export."""
        exported = "".join(self.metrics(service) for service in self.running)
        return set(re.findall(r"^# TYPE (\w+)", exported, re.MULTILINE))

    def stop(self) -> dict[str, int]:
        for service in reversed(self.running):
            self.running[service].terminate()
        return {service: process.wait(SECONDS) for service, process in self.running.items()}

    def kill(self) -> None:
        for process in self.running.values():
            if process.poll() is None:
                process.kill()
            process.wait()


@pytest.fixture
def machine(empty_database: str, redis_url: str) -> Iterator[Machine]:
    with ExitStack() as stack:
        folder = stack.enter_context(server_folder())  # a socket path must be short
        machine = Machine(empty_database, redis_url, folder)
        stack.callback(machine.kill)
        yield machine


def test_every_command_runs_and_a_job_goes_through(machine: Machine) -> None:
    migrated = subprocess.run(
        machine.command_of("migrate"), env=machine.environment("migrate"), capture_output=True, text=True, check=False
    )
    assert migrated.returncode == 0, migrated.stderr
    for service in STARTED:
        machine.start(service)
    for service in STARTED:
        machine.wait_healthy(service)

    enqueued = machine.run("enqueue", "hook", "--source", "Clay crocks are back in kitchens all over Lyon.")
    assert enqueued.returncode == 0, enqueued.stderr
    drained = machine.run("drain", "--timeout", "9m", "--json")
    assert drained.returncode == 0, drained.stderr + machine.log("worker")
    report: dict[str, Any] = json.loads(machine.run("report", "--since", "1h", "--json").stdout)
    assert sum(report["total"]["jobs"][state] for state in ("succeeded", "dead")) == 1
    assert sum(attempt["count"] for attempt in report["total"]["attempts"]) >= 1
    assert [engine["model"] for engine in report["engines"]] == [bundled_model_path().stem]

    for host, status in ((f"127.0.0.1:{machine.door}", 200), ("serve:8000", 200), ("evil.example", 403)):
        answer = httpx.get(f"http://127.0.0.1:{machine.door}/v1/models", headers={"host": host})
        assert answer.status_code == status, answer.text
    assert " INFO " not in machine.log("engine")  # THOTHY_LOG_LEVEL, in both of its processes
    assert "context=4096 kv_blocks=513x16" in machine.log("engine")

    examined = machine.run("doctor", "--json", service="worker")
    wrong = [finding for finding in json.loads(examined.stdout) if finding["level"] == "wrong"]
    assert examined.returncode == 0, wrong

    exported = {service: machine.metrics(service) for service in STARTED}
    for service, names in {
        "dispatcher": (
            "thothy_queue_depth",
            "thothy_queue_oldest_age_seconds",
            "thothy_leases",
            "thothy_database_up 1.0",
        ),
        "worker": ("thothy_jobs_total", "thothy_artifacts_total", "thothy_gpu_seconds_total"),
        "engine": ("thothy_engine_kv_blocks", "thothy_engine_busy_seconds_total", "thothy_engine_memory_used_bytes"),
        "reaper": ("thothy_jobs",),
        "serve": ("thothy_http_requests", 'thothy_http_denied_total{code="host_not_allowed"} 1.0'),
    }.items():
        for name in names:
            assert name in exported[service], f"{service} does not export {name}"
    until = time.monotonic() + SECONDS  # some metrics are read from the database now and then
    while missing := named_in_alerts() - OPTIONAL - machine.families():
        assert time.monotonic() < until, f"not exported: {missing}"
        time.sleep(0.5)
    assert machine.stop() == dict.fromkeys(STARTED, 0), {service: machine.log(service) for service in STARTED}


@pytest.mark.parametrize("password", ["sesame", 'a "quoted" \\ $one `with` #all'], ids=["plain", "special"])
def test_the_redis_command_takes_its_password(password: str, services: Services, tmp_path: Path) -> None:
    """The command line of compose.yaml, with Valkey in place of Redis."""
    binary = services.valkey.process.program.argv[0]
    port, redis = free_port(), configuration()["services"]["redis"]
    shim = tmp_path / "redis-server"
    shim.write_text(f'#!/bin/sh\nexec {binary} "$@" --port {port} --bind 127.0.0.1 --dir {tmp_path}\n')
    shim.chmod(0o755)
    (tmp_path / "secret").write_text(password + "\n")
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "REDIS_PASSWORD_FILE": str(tmp_path / "secret")}
    server = subprocess.Popen(commanded(redis), env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        assert server.stdout is not None
        while line := server.stdout.readline():
            if b"Ready to accept connections" in line:
                break
        with Redis(port=port, password=password, decode_responses=True) as client:
            assert client.ping()
            settings: dict[str, str] = client.config_get("*")
            assert (settings["appendonly"], settings["appendfsync"], settings["save"]) == ("yes", "everysec", "")
            assert (settings["maxmemory"], settings["maxmemory-policy"]) == (str(256 * 2**20), "noeviction")
    finally:
        server.terminate()
        server.communicate(timeout=SECONDS)
    assert server.returncode == 0


@pytest.mark.parametrize("content", [None, ""], ids=["missing", "empty"])
def test_redis_does_not_start_without_a_password(content: str | None, tmp_path: Path) -> None:
    """An empty `requirepass` would let everybody in."""
    if content is not None:
        (tmp_path / "secret").write_text(content)
    environment = {"PATH": os.environ["PATH"], "REDIS_PASSWORD_FILE": str(tmp_path / "secret")}
    command = commanded(configuration()["services"]["redis"])
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=SECONDS)
    assert (done.returncode, done.stderr) == (1, f"no password in {tmp_path}/secret\n")


def commanded(service: dict[str, Any]) -> list[str]:
    """The command as the container gets it: `config` prints each dollar sign twice."""
    return [part.replace("$$", "$") for part in service["command"]]


def test_postgres_accepts_its_settings() -> None:
    """The command line of compose.yaml, with the embedded Postgres."""
    from thothy_ai.embedded import Postgres
    from thothy_ai.embedded.process import Process

    program, *arguments = commanded(configuration()["services"]["postgres"])
    assert program == "postgres"
    given = dict(part.removeprefix("--").split("=") for part in arguments)
    with server_folder() as folder:
        postgres = Postgres(folder, durable=False)
        postgres.start().stop()
        plain = postgres._program()
        process = Process(replace(plain, argv=(*plain.argv, *arguments)))
        process.start()
        with psycopg.connect(postgres.url.replace("+psycopg", "")) as connection:
            asked = connection.execute(
                "SELECT name, current_setting(name) FROM pg_settings WHERE name = ANY(%s)", [[*given]]
            )
            shown = {str(name): str(value) for name, value in asked.fetchall()}
        process.stop()
    assert shown == given | {"wal_compression": "pglz"}
