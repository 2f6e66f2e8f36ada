"""The alert rules, checked by promtool: they parse, and each fires and stays silent when it should."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.fetched import fetched

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "deploy/prometheus"
RULES = yaml.safe_load((FOLDER / "alerts.yml").read_text())
CASES = yaml.safe_load((FOLDER / "alerts_test.yml").read_text())
ALERTS = {rule["alert"]: rule for group in RULES["groups"] for rule in group["rules"] if "alert" in rule}


@pytest.fixture(scope="session")
def promtool() -> str:
    """The path of promtool. The tests fail, with the reason, if it cannot be obtained."""
    return fetched("fetch-promtool")


def run(promtool: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([promtool, *arguments], cwd=FOLDER, capture_output=True, text=True, check=False)


def test_rules_and_configuration_are_valid(promtool: str) -> None:
    for arguments in (("check", "rules", "alerts.yml"), ("check", "config", "prometheus.yml")):
        done = run(promtool, *arguments)
        assert done.returncode == 0, done.stdout + done.stderr


def test_alerts_fire_and_stay_silent(promtool: str) -> None:
    done = run(promtool, "test", "rules", "alerts_test.yml")
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_broken_rule_would_be_noticed(promtool: str, tmp_path: Path) -> None:
    """The test above can fail: with a different threshold, it does."""
    text = (FOLDER / "alerts.yml").read_text()
    assert "> 50\n" in text
    (tmp_path / "alerts.yml").write_text(text.replace("> 50\n", "> 5000\n"))
    (tmp_path / "alerts_test.yml").write_text((FOLDER / "alerts_test.yml").read_text())
    done = subprocess.run(
        [promtool, "test", "rules", "alerts_test.yml"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    assert "ThothyQueueGrowingOld" in done.stdout + done.stderr


@pytest.mark.parametrize("alert", ALERTS)
def test_every_alert_is_tested_firing_and_not_firing(alert: str) -> None:
    checks = [c for case in CASES["tests"] for c in case["alert_rule_test"] if c["alertname"] == alert]
    assert any(check["exp_alerts"] for check in checks), "no test in which it fires"
    assert any(not check["exp_alerts"] for check in checks), "no test in which it does not"


@pytest.mark.parametrize(("alert", "rule"), ALERTS.items(), ids=ALERTS)
def test_every_alert_has_a_severity_and_instructions(alert: str, rule: dict[str, Any]) -> None:
    assert rule["labels"]["severity"] in {"warning", "critical"}
    assert rule["annotations"]["summary"]
    assert len(rule["annotations"]["description"]) > 60


def test_alerts_name_only_commands_that_exist() -> None:
    """An alert must not tell an operator to run a command that does not exist."""
    from typer.main import get_command

    from thothy_ai.cli import app

    quoted = [
        match
        for rule in ALERTS.values()
        for match in re.findall(r"`thothy ([^`]+)`", rule["annotations"]["description"])
    ]
    assert len(quoted) > 10
    for line in quoted:
        command: Any = get_command(app)
        words = line.split()
        while words and hasattr(command, "get_command"):
            name = words.pop(0)
            command = command.get_command(None, name)
            assert command is not None, f"thothy {line}: no command {name}"
        options = {option for parameter in command.params for option in parameter.opts}
        assert {word for word in words if word.startswith("--")} <= options, f"thothy {line}"
