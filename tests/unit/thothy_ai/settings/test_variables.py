"""A THOTHY_* variable that is not a setting is found, with the setting that was probably meant."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from thothy_ai import crash_points
from thothy_ai.engine.api.options import engine_variables
from thothy_ai.settings import Settings, unknown_variables
from thothy_ai.settings.variables import OTHERS

ROOT = Path(__file__).parents[4]
KNOWN = (*Settings.variables(), *engine_variables())


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.upper().startswith("THOTHY_"):
            monkeypatch.delenv(name)


def found(home: Path) -> list[str]:
    return [str(variable) for variable in unknown_variables(KNOWN, home)]


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("THOTHY_WORKER_INFLIGHT", "; did you mean THOTHY_WORKER_IN_FLIGHT?"),
        ("THOTHY_DRAIN_DEADLINE_SECONDS", "; did you mean THOTHY_SHUTDOWN_DEADLINE_SECONDS?"),
        ("THOTHY_KIND", "; did you mean THOTHY_KINDS?"),
        ("thothy_tennant", "; did you mean THOTHY_TENANT?"),
        ("THOTHY_ENGINE_KV_TYPE", "; did you mean THOTHY_ENGINE_KV_DTYPE?"),
        ("THOTHY_REDIS_PASSWORD_FIL", "; did you mean THOTHY_REDIS_PASSWORD_FILE?"),
        ("THOTHY_METRIC_PORT", "; did you mean THOTHY_METRICS_PORT?"),
        ("THOTHY_COLOUR", ", and has no effect"),
    ],
)
def test_a_misspelt_variable_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, says: str) -> None:
    monkeypatch.setenv(name, "1")
    assert found(tmp_path) == [f"{name} is not a setting{says}"]


def test_one_in_stack_env_is_found(tmp_path: Path) -> None:
    (tmp_path / "stack.env").write_text("THOTHY_TENANT='a'\nTHOTHY_REDISURL='redis://r'\n")
    assert found(tmp_path) == ["THOTHY_REDISURL is not a setting; did you mean THOTHY_REDIS_URL?"]


def test_settings_and_what_others_read_are_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*KNOWN, *OTHERS, "thothy_tenant"):
        monkeypatch.setenv(name, "1")
    assert crash_points.VARIABLE in OTHERS
    assert found(tmp_path) == []


def test_what_kubernetes_sets_for_a_service_is_no_mistake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    links = {
        "THOTHY_WEB_SERVICE_HOST": "10.0.0.1", "THOTHY_WEB_SERVICE_PORT": "80", "THOTHY_WEB_SERVICE_PORT_HTTP": "80",
        "THOTHY_WEB_PORT": "tcp://10.0.0.1:80", "THOTHY_WEB_PORT_80_TCP": "tcp://10.0.0.1:80",
        "THOTHY_WEB_PORT_80_TCP_PROTO": "tcp", "THOTHY_WEB_PORT_80_TCP_ADDR": "10.0.0.1",
    }  # fmt: skip
    for name, value in links.items():
        monkeypatch.setenv(name, value)
    assert found(tmp_path) == []


@pytest.mark.parametrize(
    "name", ["compose.yaml", "deploy/compose.gpu.yaml", "deploy/settings.yaml", ".env.example", "deploy/Dockerfile"]
)
def test_every_variable_in_deployment_files_is_known(name: str) -> None:
    named = set(re.findall(r"THOTHY_[A-Z_]+", (ROOT / name).read_text("utf-8")))
    assert named <= {*KNOWN, *OTHERS}
