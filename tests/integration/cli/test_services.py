"""Every command of compose.yaml as a plain process on a real Postgres and Valkey, with one job from end to end."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
import yaml
from redis import Redis

from tests.support.pending_metrics import PENDING

ROOT = Path(__file__).parents[3]
COMPOSE = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]
STARTED = ("engine", "dispatcher", "reaper", "worker")  # as depends_on would
SECONDS = 60


def free_port() -> int:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def command_of(service: str) -> list[str]:
    """The service's command, with this interpreter in place of `thothy`, and the null engine."""
    program, *arguments = COMPOSE[service]["command"]
    assert program == "thothy"
    if service == "engine":
        assert arguments[:2] == ["engine", "--model"]
        arguments = ["engine", "--null"]
    return [sys.executable, "-m", "thothy_ai.cli", *arguments]


def named_in_alerts() -> set[str]:
    """The metrics used in alert expressions. An alert on a metric that is never exported can never fire."""
    rules = yaml.safe_load((ROOT / "deploy/prometheus/alerts.yml").read_text())
    expressions = [rule["expr"] for group in rules["groups"] for rule in group["rules"]]
    named = {name for expression in expressions for name in re.findall(r"\bthothy_\w+", expression)}
    assert len(named) > 10
    return named


class Machine:
    """Processes with the environment of compose.yaml, with this machine's hosts and paths."""

    def __init__(self, database_url: str, redis_url: str, folder: Path) -> None:
        self.folder = folder
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self._here = {
            "THOTHY_DATABASE_URL": database_url,
            "THOTHY_REDIS_URL": redis_url,
            "THOTHY_ENGINE_URL": f"unix://{folder}/engine.sock",
            "THOTHY_HOME": str(folder / "home"),
        }
        self._ports = {service: free_port() for service in STARTED}

    def environment(self, service: str) -> dict[str, str]:
        named = COMPOSE[service]["environment"]
        plain = {name: str(value) for name, value in named.items() if "$" not in str(value)}
        port = {"THOTHY_METRICS_PORT": str(self._ports[service])} if service in self._ports else {}
        here = {name: value for name, value in self._here.items() if name in named or name == "THOTHY_HOME"}
        return {**os.environ, **plain, **here, **port, "THOTHY_METRICS_HOST": "127.0.0.1"}

    def run(self, *arguments: str, service: str = "migrate") -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "thothy_ai.cli", *arguments]
        environment = self.environment(service)
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=SECONDS)

    def start(self, service: str) -> None:
        with (self.folder / f"{service}.log").open("wb") as log:
            self.running[service] = subprocess.Popen(
                command_of(service), env=self.environment(service), stdout=log, stderr=subprocess.STDOUT
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
        kind, *test = COMPOSE[service]["healthcheck"]["test"]
        assert kind == "CMD"
        if test[0] == "thothy":
            return self.run(*test[1:], service=service).returncode == 0
        test = [sys.executable if word == "python" else word for word in test]
        test = [word.replace("9400", str(self._ports[service])) for word in test]
        return subprocess.run(test, capture_output=True, check=False).returncode == 0

    def metrics(self, service: str) -> str:
        code = "import sys, urllib.request as r; sys.stdout.write(r.urlopen(sys.argv[1]).read().decode())"
        url = f"http://127.0.0.1:{self._ports[service]}/metrics"
        return subprocess.run([sys.executable, "-c", code, url], capture_output=True, text=True, check=True).stdout

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
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="thothy-"))  # a socket path must be short
        machine = Machine(empty_database, redis_url, Path(folder))
        stack.callback(machine.kill)
        yield machine


def test_every_command_runs_and_a_job_goes_through(machine: Machine) -> None:
    migrated = subprocess.run(
        command_of("migrate"), env=machine.environment("migrate"), capture_output=True, text=True, check=False
    )
    assert migrated.returncode == 0, migrated.stderr
    for service in STARTED:
        machine.start(service)
    for service in STARTED:
        machine.wait_healthy(service)

    enqueued = machine.run("enqueue", "hook", "--source", "Clay crocks are back in kitchens all over Lyon.")
    assert enqueued.returncode == 0, enqueued.stderr
    drained = machine.run("drain", "--timeout", "40s", "--json")
    assert drained.returncode == 0, drained.stderr + machine.log("worker")
    report: dict[str, Any] = json.loads(machine.run("report", "--since", "1h", "--json").stdout)
    assert sum(report["total"]["jobs"][state] for state in ("succeeded", "dead")) == 1
    assert sum(attempt["count"] for attempt in report["total"]["attempts"]) >= 1
    assert [engine["model"] for engine in report["engines"]] == ["null"]

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
    }.items():
        for name in names:
            assert name in exported[service], f"{service} does not export {name}"
    families = set(re.findall(r"^# TYPE (\w+)", "".join(exported.values()), re.MULTILINE))
    assert named_in_alerts() - PENDING - families == set()
    assert machine.stop() == dict.fromkeys(STARTED, 0), {service: machine.log(service) for service in STARTED}


def test_the_redis_command_takes_its_password(tmp_path: Path) -> None:
    """The command line of compose.yaml, with Valkey in place of Redis."""
    from thothy_ai.embedded.valkey import _binary

    port = free_port()
    shim = tmp_path / "redis-server"
    shim.write_text(f'#!/bin/sh\nexec {_binary()} "$@" --port {port} --bind 127.0.0.1 --dir {tmp_path}\n')
    shim.chmod(0o755)
    command = [part.replace("$$", "$") for part in COMPOSE["redis"]["command"]]
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "REDIS_PASSWORD": "sesame"}
    server = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        assert server.stdout is not None
        while line := server.stdout.readline():
            if b"Ready to accept connections" in line:
                break
        with Redis(port=port, password="sesame", decode_responses=True) as client:
            assert client.ping()
            assert client.config_get("appendonly") == {"appendonly": "yes"}
    finally:
        server.terminate()
        server.communicate(timeout=SECONDS)
    assert server.returncode == 0
