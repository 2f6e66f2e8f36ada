"""compose.yaml, checked by the docker-compose binary, and its consistency with settings, Prometheus and the image."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.fetched import fetched

ROOT = Path(__file__).parents[3]
PASSWORDS = {
    "POSTGRES_PASSWORD": "pg-word",
    "REDIS_PASSWORD": "redis-word",
    "THOTHY_MODELS": "/srv/models",
    "THOTHY_MODEL": "some-model",
}
ONCE = {"migrate", "alertmanager-config"}
OURS = {"migrate", "engine", "worker", "dispatcher", "reaper"}


@pytest.fixture(scope="session")
def program() -> str:
    """The path of docker-compose. The tests fail, with the reason, if it cannot be obtained."""
    return fetched("fetch-compose")


def compose(
    program: str, *arguments: str, environment: dict[str, str] = PASSWORDS, files: tuple[str, ...] = ("compose.yaml",)
) -> Any:
    named = [part for file in files for part in ("-f", file)]
    command = [program, *named, "--env-file", "/dev/null", *arguments]
    environment = {"PATH": os.environ["PATH"], **environment}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="session")
def services(program: str) -> dict[str, Any]:
    done = compose(program, "config", "--format", "json")
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)["services"]
    return document


@pytest.mark.parametrize("files", [("compose.yaml",), ("compose.yaml", "deploy/compose.gpu.yaml")], ids=["cpu", "gpu"])
def test_compose_accepts_it(program: str, files: tuple[str, ...]) -> None:
    done = compose(program, "config", "-q", files=files)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("missing", PASSWORDS)
def test_nothing_starts_without_its_secrets(program: str, missing: str) -> None:
    done = compose(program, "config", "-q", environment={k: v for k, v in PASSWORDS.items() if k != missing})
    assert done.returncode != 0
    assert f"set {missing} in .env" in done.stderr


def test_the_example_environment_names_what_is_needed() -> None:
    lines = (ROOT / ".env.example").read_text().splitlines()
    assert {line.partition("=")[0] for line in lines if line and not line.startswith("#")} == set(PASSWORDS)


def test_no_secret_is_hard_coded() -> None:
    text = (ROOT / "compose.yaml").read_text() + (ROOT / "deploy/Dockerfile").read_text()
    for line in text.splitlines():
        if "PASSWORD" in line:
            assert "${" in line or "$$" in line or line.lstrip().startswith("#"), line


def test_every_service_is_there(services: dict[str, Any]) -> None:
    assert set(services) == OURS | {"redis", "postgres", "prometheus", "alertmanager", "alertmanager-config"}


def test_ports_are_published_on_loopback_only(services: dict[str, Any]) -> None:
    ports = [port for service in services.values() for port in service.get("ports", [])]
    assert {port["target"] for port in ports} == {5432, 9090, 9093}
    assert {port["host_ip"] for port in ports} == {"127.0.0.1"}


def test_services_wait_for_their_dependencies_and_restart(services: dict[str, Any]) -> None:
    for name in ("worker", "dispatcher", "reaper"):
        conditions = {service: needs["condition"] for service, needs in services[name]["depends_on"].items()}
        assert conditions["migrate"] == "service_completed_successfully"
        assert conditions["postgres"] == conditions["redis"] == "service_healthy"
    assert services["worker"]["depends_on"]["engine"]["condition"] == "service_healthy"
    for name, service in services.items():
        assert service["restart"] == ("on-failure:5" if name in ONCE else "unless-stopped")
        assert name in ONCE or service["healthcheck"]["test"]


def test_worker_and_engine_share_the_socket(services: dict[str, Any]) -> None:
    mounts = [{(m["source"], m["target"]) for m in services[name]["volumes"]} for name in ("worker", "engine")]
    assert ("socket", "/run/thothy") in mounts[0] & mounts[1]
    assert services["worker"]["environment"]["THOTHY_ENGINE_URL"].startswith("unix:///run/thothy/")


def test_the_worker_gets_the_kinds_of_a_folder(program: str, services: dict[str, Any], tmp_path: Path) -> None:
    """The settings turn what Compose passes on into file names in the container."""
    from thothy_ai.settings import Settings

    chosen = {"THOTHY_KINDS_FOLDER": str(tmp_path), "THOTHY_KINDS": "/kinds/quiz.py,/kinds/sonnet.py"}
    done = compose(program, "config", "--format", "json", environment=PASSWORDS | chosen)
    worker = json.loads(done.stdout)["services"]["worker"]
    [mount] = [mount for mount in worker["volumes"] if mount["target"] == "/kinds"]
    assert (mount["type"], mount["source"], mount["read_only"]) == ("bind", str(tmp_path), True)
    for found, kinds in ((worker, ("/kinds/quiz.py", "/kinds/sonnet.py")), (services["worker"], ())):
        assert Settings.load(kinds=found["environment"]["THOTHY_KINDS"]).kinds == kinds


def test_the_worker_s_grace_period_exceeds_its_deadline(services: dict[str, Any]) -> None:
    from thothy_ai.settings import Settings

    assert services["worker"]["stop_grace_period"] == "1m30s"
    assert Settings.model_fields["shutdown_deadline_seconds"].default < 90


def test_metrics_ports_match_the_prometheus_targets(services: dict[str, Any]) -> None:
    import yaml

    configuration = yaml.safe_load((ROOT / "deploy/prometheus/prometheus.yml").read_text())
    asked = set()
    for job in configuration["scrape_configs"]:
        asked |= {target for static in job.get("static_configs", []) for target in static["targets"]}
        asked |= {f"{name}:{found['port']}" for found in job.get("dns_sd_configs", []) for name in found["names"]}
    assert asked == {f"{name}:{services[name]['environment']['THOTHY_METRICS_PORT']}" for name in OURS - {"migrate"}}


def test_settings_in_compose_are_settings_that_exist(services: dict[str, Any]) -> None:
    from thothy_ai.settings import PREFIX, Settings

    known = {f"{PREFIX}{name.upper()}" for name in Settings.model_fields}
    for name in OURS:
        assert set(services[name]["environment"]) <= known


def test_the_engine_gets_no_password(services: dict[str, Any]) -> None:
    assert not [word for word in ("pg-word", "redis-word") if word in json.dumps(services["engine"])]
    assert "pg-word" in json.dumps(services["worker"])


def test_the_engine_s_caches_are_on_a_volume(services: dict[str, Any]) -> None:
    """The root file system is read-only; converted models and compiled kernels need a writable volume."""
    image = (ROOT / "deploy/Dockerfile").read_text()
    home = re.search(r"THOTHY_HOME=(\S+)", image)
    assert home
    assert services["engine"]["read_only"] is True
    assert home[1] in {mount["target"] for mount in services["engine"]["volumes"]}
    assert f"mkdir -p /run/thothy {home[1]}" in image


def test_the_build_context_names_only_existing_files() -> None:
    kept = [
        line.removeprefix("!") for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")
    ]
    assert {"pyproject.toml", "thothy_ai", "engine", "jobs", "kernels", "migrations"} <= set(kept)
    assert not [name for name in kept if not (ROOT / name).exists()]
