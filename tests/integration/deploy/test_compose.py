"""compose.yaml, checked by the docker-compose binary, and its consistency with settings, Prometheus and the image."""

from __future__ import annotations

import json
import re
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.compose import CPU, GPU, ROOT, compose, configuration, environment_of
from thothy_ai.engine.api.options import all_options, engine_variables
from thothy_ai.settings import PREFIX, Settings

ONCE = {"migrate", "alertmanager-config"}
OURS = {*ONCE, "engine", "worker", "dispatcher", "reaper", "serve"}
SERVERS = {"postgres", "redis", "prometheus", "alertmanager"}
SECRETS = {"postgres_password", "redis_password", "webhook_secrets"}
PROFILES = [None, *(f"gpus-{count}" for count in range(2, 9))]
# Set in compose.yaml: the network inside, the home in the image, and a name per engine.
FIXED_NAMES = ("HOME", "METRICS_HOST", "METRICS_PORT", "ENGINE_URL", "ENGINE_NAME", "HTTP_HOST", "HTTP_PORT")
FIXED = {f"{PREFIX}{name}" for name in FIXED_NAMES}
KNOWN = {*Settings.variables(), *engine_variables()}


@pytest.fixture(scope="session")
def services() -> dict[str, Any]:
    found: dict[str, Any] = configuration()["services"]
    return found


def seconds(duration: str) -> float:
    """Seconds of `1m30s`."""
    parts = re.findall(r"(\d+)([hms])", duration)
    return sum(float(number) * {"h": 3600, "m": 60, "s": 1}[unit] for number, unit in parts)


def test_it_works_with_nothing_set() -> None:
    done = compose("config", "-q")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("profile", PROFILES)
def test_there_is_an_engine_and_a_worker_per_gpu(profile: str | None) -> None:
    found = configuration(files=GPU, profile=profile)["services"]
    count = int(profile.removeprefix("gpus-")) if profile else 1
    suffixes = ["", *(f"-{number}" for number in range(1, count))]
    pairs = {f"{name}{suffix}" for name in ("engine", "worker") for suffix in suffixes}
    assert OURS | SERVERS | pairs <= set(found)
    assert {name for name in found if re.match("engine|worker", name)} == pairs
    sockets, gpus, names = set(), [], set()
    for suffix in suffixes:
        engine, worker = found[f"engine{suffix}"], found[f"worker{suffix}"]
        for each in (engine, worker, found["serve"]):
            assert {mount["source"] for mount in each["volumes"] if mount["target"] == "/run/thothy"} == {"socket"}
        socket = environment_of(engine)["THOTHY_ENGINE_URL"]
        assert environment_of(worker)["THOTHY_ENGINE_URL"] == socket
        assert worker["depends_on"][f"engine{suffix}"]["condition"] == "service_healthy"
        assert [name for name in worker["depends_on"] if name.startswith("engine")] == [f"engine{suffix}"]
        assert environment_of(worker)["THOTHY_WORKER_IN_FLIGHT"] == "1024"
        assert environment_of(engine)["NVIDIA_REQUIRE_CUDA"] == "cuda>=13.0"
        assert engine["build"]["args"] == {"TORCH_INDEX": ""}
        (device,) = engine["deploy"]["resources"]["reservations"]["devices"]
        gpus += device["device_ids"]
        sockets.add(socket)
        names.add((engine["container_name"], environment_of(engine)["THOTHY_ENGINE_NAME"]))
    assert gpus == [str(number) for number in range(count)]
    assert len(sockets) == len(names) == count


def test_scaling_an_engine_is_refused(tmp_path: Path) -> None:
    """Two engines would share a socket."""
    (tmp_path / "scaled.yaml").write_text("services: {engine: {scale: 2}}\n")
    done = compose("config", "-q", files=(*CPU, str(tmp_path / "scaled.yaml")))
    assert done.returncode != 0
    assert "container name must be unique" in done.stderr
    (tmp_path / "scaled.yaml").write_text("services: {worker: {scale: 2}}\n")
    assert compose("config", "-q", files=(*CPU, str(tmp_path / "scaled.yaml"))).returncode == 0


def test_every_setting_and_engine_option_is_reachable_from_env(tmp_path: Path) -> None:
    variables = {*engine_variables(), *(f"{PREFIX}{name.upper()}" for name in Settings.model_fields)} - FIXED
    secret = {name.removesuffix("_FILE") for name in Settings.variables() if name.endswith("_FILE")}
    wanted = dict.fromkeys(variables - secret, "/some/thing")
    wanted |= {"THOTHY_DATABASE_URL": "one", "THOTHY_REDIS_URL": "two"}
    (tmp_path / ".env").write_text("".join(f"{name}={value}\n" for name, value in wanted.items()))
    found = configuration(env_file=str(tmp_path / ".env"), files=GPU)["services"]
    seen = environment_of(found["worker"]) | environment_of(found["engine"])
    for name in wanted:
        assert seen[name].endswith(wanted[name]), name
    for name, value in environment_of(found["serve"]).items():
        assert name not in wanted or value.endswith(wanted[name]), name
    elsewhere = {*engine_variables(), "THOTHY_MODEL", "THOTHY_KINDS"}
    assert {*environment_of(found["dispatcher"])} >= wanted.keys() - elsewhere


def test_what_is_not_set_is_not_passed_on(services: dict[str, Any]) -> None:
    assert {*environment_of(services["worker"])} & {"THOTHY_LEASE_SECONDS", "THOTHY_JUDGES"} == set()
    assert {*environment_of(services["engine"])} & set(engine_variables()) == set()


def test_the_example_environment_is_accepted_and_changes_nothing_even_if_all_is_set(
    services: dict[str, Any], tmp_path: Path
) -> None:
    """With every line active, containers see the defaults, and settings and engine options accept them."""
    example = (ROOT / ".env.example").read_text()
    assert configuration(env_file=".env.example")["services"] == services
    lines = [line.removeprefix("# ") for line in example.splitlines() if re.match(r"# [A-Z][A-Z_]+=", line)]
    named = {line.partition("=")[0] for line in lines}
    assert named >= set(engine_variables())
    assert not {name for name in named if name.endswith("PASSWORD")}
    (tmp_path / ".env").write_text("\n".join(line for line in lines if not line.startswith("COMPOSE_")))
    every = configuration(env_file=str(tmp_path / ".env"))["services"]
    for name in ("engine", "worker", "redis", "postgres", "prometheus"):
        for key in ("image", "command", "deploy", "stop_grace_period", "secrets", "logging", "volumes"):
            assert every[name].get(key) == services[name].get(key), (name, key)
    given = {name: value for name, value in environment_of(every["worker"]).items() if not name.endswith("_FILE")}
    loaded = Settings.load(**{name.removeprefix(PREFIX).lower(): value for name, value in given.items() if value})
    for name, field in Settings.model_fields.items():
        if f"{PREFIX}{name.upper()}" not in FIXED and not name.endswith("_url"):
            assert getattr(loaded, name) == field.default, name


def test_no_password_is_in_an_environment_or_a_command(services: dict[str, Any]) -> None:
    """`docker inspect` shows both. A secret is a file that the service reads."""
    for name, service in services.items():
        given = environment_of(service) if "environment" in service else {}
        assert not [key for key in given if "PASSWORD" in key and not key.endswith("_FILE")], name
        files = {value for key, value in given.items() if key.endswith("_FILE") and value}
        mounted = {secret["target"] for secret in service.get("secrets", [])}
        assert files == mounted, name
        assert "://:" not in json.dumps(service)
    assert {s["source"] for service in services.values() for s in service.get("secrets", [])} == SECRETS


def test_the_engine_does_not_get_the_password_of_redis(services: dict[str, Any]) -> None:
    assert [secret["source"] for secret in services["engine"]["secrets"]] == ["postgres_password"]
    assert "redis" not in json.dumps(environment_of(services["engine"]))


def test_the_secrets_script_writes_each_secret_once(tmp_path: Path) -> None:
    folder = tmp_path / "secrets"
    script = [ROOT / "deploy/make-secrets", folder]
    subprocess.run(script, check=True, capture_output=True)
    written = {file.name: file.read_text() for file in folder.iterdir()}
    assert set(written) == SECRETS
    assert len(set(written.values())) == 3
    assert all(re.fullmatch(r"[0-9a-f]{48}", text) for text in written.values())
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700  # nobody else gets at the files
    assert {stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()} == {0o444}  # containers' accounts do
    (folder / "redis_password").unlink()
    assert "kept" in subprocess.run(script, check=True, capture_output=True, text=True).stdout
    assert (folder / "postgres_password").read_text() == written["postgres_password"]
    assert (folder / "redis_password").read_text() != written["redis_password"]
    found = configuration(variables={"THOTHY_SECRETS": str(folder)})["secrets"]
    assert {Path(secret["file"]) for secret in found.values()} == set(folder.iterdir())
    assert re.search(r"^secrets/$", (ROOT / ".gitignore").read_text(), re.MULTILINE)


def test_ports_are_published_on_loopback_only(services: dict[str, Any]) -> None:
    ports = [port for service in services.values() for port in service.get("ports", [])]
    assert {5432, 8000, 9090, 9093} <= {port["target"] for port in ports}
    assert {port["host_ip"] for port in ports} == {"127.0.0.1"}


def test_services_wait_for_their_dependencies_and_restart(services: dict[str, Any]) -> None:
    for name in ("worker", "dispatcher", "reaper"):
        conditions = {service: needs["condition"] for service, needs in services[name]["depends_on"].items()}
        assert conditions["migrate"] == "service_completed_successfully"
        assert conditions["postgres"] == conditions["redis"] == "service_healthy"
    assert services["engine"]["depends_on"]["migrate"]["condition"] == "service_completed_successfully"
    assert services["worker"]["depends_on"]["engine"]["condition"] == "service_healthy"
    for name, service in services.items():
        assert service["restart"] == ("on-failure:5" if name in ONCE else "unless-stopped")
        assert name in ONCE or service["healthcheck"]["test"]


@pytest.mark.parametrize("files", [CPU, GPU], ids=["cpu", "gpu"])
def test_every_container_has_limits_a_bounded_log_and_no_new_privileges(files: tuple[str, ...]) -> None:
    for name, service in configuration(files=files, profile="gpus-2")["services"].items():
        assert service["logging"]["options"].keys() == {"max-size", "max-file"}, name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        limits = service["deploy"]["resources"]["limits"]
        assert "memory" in limits or name.startswith("engine"), name  # of an engine, the model decides
        assert name == "postgres" or service["cap_drop"] == ["ALL"], name
        assert name == "postgres" or service["read_only"] is True, name
    limited = configuration(variables={"ENGINE_MEMORY": "32g", "ENGINE_CPUS": "8"})["services"]["engine"]
    assert limited["deploy"]["resources"]["limits"] == {"cpus": 8, "memory": str(32 * 2**30), "pids": 4096}


def test_images_are_pinned(services: dict[str, Any]) -> None:
    for name in services.keys() - OURS:
        assert re.search(r":v?\d+\.\d+", services[name]["image"]), name
    assert re.search(r"^ARG PYTHON_IMAGE=python:3\.\d+\.\d+-", (ROOT / "deploy/Dockerfile").read_text(), re.MULTILINE)


def test_grace_periods_exceed_deadlines(services: dict[str, Any]) -> None:
    options = {declared.name: declared.default for declared in all_options()}
    assert seconds(services["worker"]["stop_grace_period"]) > Settings.model_fields["shutdown_deadline_seconds"].default
    assert seconds(services["engine"]["stop_grace_period"]) >= options["shutdown_seconds"] + 20
    longer = configuration(variables={"WORKER_STOP_GRACE": "11m"})["services"]["worker"]
    assert seconds(longer["stop_grace_period"]) == 660


def test_a_model_is_taken_from_the_folder_and_else_from_the_image(services: dict[str, Any]) -> None:
    image = (ROOT / "deploy/Dockerfile").read_text()
    bundled = Path(environment_of(services["engine"])["THOTHY_MODEL"])
    assert f"mkdir -p {bundled.parent}" in image
    assert f"{bundled.name} {bundled.parent}/" in image
    chosen = {"THOTHY_MODELS": "/srv/models", "THOTHY_MODEL": "Qwen3-8B"}
    engine = configuration(variables=chosen)["services"]["engine"]
    assert environment_of(engine)["THOTHY_MODEL"] == "/models/Qwen3-8B"
    (mount,) = [mount for mount in engine["volumes"] if mount["target"] == "/models"]
    assert (mount["source"], mount["read_only"]) == ("/srv/models", True)


def test_the_worker_gets_the_kinds_of_a_folder(services: dict[str, Any], tmp_path: Path) -> None:
    """The settings turn what Compose passes on into file names in the container."""
    chosen = {"THOTHY_KINDS_FOLDER": str(tmp_path), "THOTHY_KINDS": "/kinds/quiz.py,/kinds/sonnet.py"}
    worker = configuration(variables=chosen)["services"]["worker"]
    (mount,) = [mount for mount in worker["volumes"] if mount["target"] == "/kinds"]
    assert (mount["type"], mount["source"], mount["read_only"]) == ("bind", str(tmp_path), True)
    for found, kinds in ((worker, ("/kinds/quiz.py", "/kinds/sonnet.py")), (services["worker"], ())):
        assert Settings.load(kinds=found["environment"]["THOTHY_KINDS"]).kinds == kinds


def test_metrics_ports_match_the_prometheus_targets(services: dict[str, Any]) -> None:
    scraped = yaml.safe_load((ROOT / "deploy/prometheus/prometheus.yml").read_text())
    asked = set()
    for job in scraped["scrape_configs"]:
        asked |= {target for static in job.get("static_configs", []) for target in static["targets"]}
        asked |= {f"{name}:{found['port']}" for found in job.get("dns_sd_configs", []) for name in found["names"]}
    assert asked >= {f"{name}:{services[name]['environment']['THOTHY_METRICS_PORT']}" for name in OURS - ONCE}


def test_settings_in_compose_are_settings_that_exist(services: dict[str, Any]) -> None:
    for name in OURS:
        assert set(services[name]["environment"]) <= KNOWN | {"TMPDIR"}


def test_the_engine_s_caches_are_on_a_volume(services: dict[str, Any]) -> None:
    """The root file system is read-only; converted models and compiled kernels need a writable volume."""
    image = (ROOT / "deploy/Dockerfile").read_text()
    home = re.search(r"THOTHY_HOME=(\S+)", image)
    assert home
    assert home[1] in {mount["target"] for mount in services["engine"]["volumes"]}
    assert f"mkdir -p /run/thothy {home[1]}" in image
