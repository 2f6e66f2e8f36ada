"""The alert rules, checked by promtool: they parse, and each fires and stays silent when it should. Their runbooks."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.fetched import fetched
from thothy_ai.admin.doctor import CHECKS

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "deploy/prometheus"
RUNBOOKS = ROOT / "docs/runbooks"
RULES = yaml.safe_load((FOLDER / "alerts.yml").read_text())
CASES = yaml.safe_load((FOLDER / "alerts_test.yml").read_text())
ALERTS = {rule["alert"]: rule for group in RULES["groups"] for rule in group["rules"] if "alert" in rule}


@pytest.fixture(scope="session")
def promtool() -> str:
    """The path of promtool. The tests fail, with the reason, if it cannot be obtained."""
    return fetched("fetch-promtool")


def run(promtool: str, *arguments: str, folder: Path = FOLDER) -> subprocess.CompletedProcess[str]:
    return subprocess.run([promtool, *arguments], cwd=folder, capture_output=True, text=True, check=False)


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
    assert "[30m]) > 50\n" in text
    (tmp_path / "alerts.yml").write_text(text.replace("[30m]) > 50\n", "[30m]) > 5000\n"))
    some = [case for case in CASES["tests"] if "ThothyQueueGrowing" in yaml.dump(case)]
    (tmp_path / "alerts_test.yml").write_text(yaml.dump({**CASES, "tests": some}))
    done = run(promtool, "test", "rules", "alerts_test.yml", folder=tmp_path)
    assert done.returncode != 0
    assert "ThothyQueueGrowing" in done.stdout + done.stderr


WHY = " `thothy doctor --only engine`, and the engine's log (out of memory, missing model), say why."
DOWN = [
    (
        {"up{job='thothy-engine',instance='a'}": "0x9", "thothy:engine_name{instance='a',engine='box-0'}": "1x9"},
        {"instance": "a", "engine": "box-0", "job": "thothy-engine"},
        "The engine box-0 is not responding",
        "Its GPU is idle; jobs wait for another engine, or until this one is back." + WHY,
    ),
    (
        {"up{job='thothy-worker'}": "1x9"},
        {"job": "thothy-engine"},
        "No engine is responding",
        "All jobs wait until one is." + WHY,
    ),
]


@pytest.mark.parametrize(("series", "labels", "summary", "description"), DOWN, ids=["one", "none at all"])
def test_an_engine_that_is_down_is_named_if_there_is_one(
    promtool: str, tmp_path: Path, series: dict[str, str], labels: dict[str, str], summary: str, description: str
) -> None:
    rules = (FOLDER / "alerts.yml").read_text()
    (tmp_path / "alerts.yml").write_text(re.sub(r" +runbook_url: .*\n", "", rules))  # promtool 2.42 has no external URL
    alert = {
        "exp_labels": {"severity": "critical", **labels},
        "exp_annotations": {"summary": summary, "description": description},
    }
    case = {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "alert_rule_test": [{"eval_time": "8m", "alertname": "ThothyEngineDown", "exp_alerts": [alert]}],
    }
    (tmp_path / "alerts_test.yml").write_text(yaml.dump({**CASES, "tests": [case]}))
    done = run(promtool, "test", "rules", "alerts_test.yml", folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("series", "value"),
    [
        ({"thothy_jobs_decided{kind='a'}": "3x9", "thothy_jobs_approved{kind='a'}": "2x9"}, 1.0),
        (
            {
                f"thothy_jobs_{name}{{kind='{kind}',instance='{instance}'}}": f"{jobs}x9"
                for name, kind, jobs in (
                    ("decided", "a", 4),
                    ("approved", "a", 3),
                    ("decided", "b", 1),
                    ("approved", "b", 1),
                )
                for instance in ("dispatcher", "standby")
            },
            2.0,
        ),
        ({"thothy_jobs_decided{kind='a'}": "3x9", "thothy_jobs_approved{kind='a'}": "0x9"}, 0.0),
        ({}, None),
    ],
    ids=["one kind", "two kinds and dispatchers", "only rejected", "nobody has decided"],
)
def test_what_people_approve_per_hour_of_residency(
    promtool: str, tmp_path: Path, series: dict[str, str], value: float | None
) -> None:
    (tmp_path / "alerts.yml").write_text((FOLDER / "alerts.yml").read_text())
    name = "thothy:approved_per_gpu_hour:7d"
    case = {
        "interval": "1m",
        "input_series": [
            {"series": one, "values": values} for one, values in {**series, "thothy_resident_seconds": "7200x9"}.items()
        ],
        "promql_expr_test": [
            {
                "eval_time": "5m",
                "expr": name,
                "exp_samples": [] if value is None else [{"labels": name, "value": value}],
            }
        ],
    }
    (tmp_path / "alerts_test.yml").write_text(yaml.dump({**CASES, "tests": [case]}))
    done = run(promtool, "test", "rules", "alerts_test.yml", folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def checks() -> Iterator[tuple[str, dict[str, Any]]]:
    """The alert that each check asks for, "" for all of them; and the check."""
    for case in CASES["tests"]:
        for check in case["promql_expr_test"]:
            found = re.fullmatch(r'ALERTS\{(?:alertname="(\w+)",)?alertstate="firing"\}', check["expr"])
            assert found, check["expr"]
            yield found[1] or "", check


@pytest.mark.parametrize("alert", ALERTS)
def test_every_alert_is_tested_firing_and_not_firing(alert: str) -> None:
    own = [check for name, check in checks() if name == alert]
    assert any(check["exp_samples"] for check in own), "no test in which it fires"
    assert any(not check["exp_samples"] for check in own), "no test in which it does not"


def test_a_healthy_batch_and_an_idle_box_fire_nothing() -> None:
    quiet = [case["name"] for case in CASES["tests"] if 'expr: ALERTS{alertstate="firing"}' in yaml.dump(case)]
    assert [name.split(":")[0].split(",")[0] for name in quiet] == [
        "a healthy batch of 40 minutes", "a batch that is enqueued over ten minutes", "an idle box",
    ]  # fmt: skip
    assert not any(check["exp_samples"] for name, check in checks() if not name)


@pytest.mark.parametrize(("alert", "rule"), ALERTS.items(), ids=ALERTS)
def test_every_alert_has_a_severity_an_impact_and_a_runbook(alert: str, rule: dict[str, Any]) -> None:
    notes = rule["annotations"]
    assert rule["labels"]["severity"] in {"warning", "critical"}
    assert notes["summary"]
    assert len(notes["description"]) > 60
    assert notes["runbook_url"] == f"{{{{ externalURL }}}}/user/{alert}.md"
    page = (RUNBOOKS / f"{alert}.md").read_text(encoding="utf-8")
    assert re.findall(r"^# (.+)|^## (.+)", page, re.MULTILINE) == [
        (alert, ""), ("", "Look at"), ("", "Do"), ("", "When it can wait"),
    ]  # fmt: skip


@pytest.mark.parametrize(("alert", "rule"), ALERTS.items(), ids=ALERTS)
def test_an_alert_about_one_engine_names_it(alert: str, rule: dict[str, Any]) -> None:
    """By its own name: an address is that of a container."""
    of_one_engine = "thothy:engine_name" in rule["expr"] or alert == "ThothyEngineLost"
    assert of_one_engine == alert.startswith(("ThothyEngine", "ThothyGpu", "ThothyKv"))
    named = re.compile(r"{{ \$labels\.engine }}|{{ with \$labels\.engine }}[^{]*{{ \. }}")
    assert (named.search(rule["annotations"]["summary"]) is not None) == of_one_engine
    assert "$labels.instance" not in str(rule["annotations"])


def test_every_runbook_belongs_to_an_alert() -> None:
    assert {page.stem for page in RUNBOOKS.glob("*")} == set(ALERTS)


def commands_of(text: str) -> Iterator[str]:
    """The commands that a text names: in inline code, and line by line in its shell blocks."""
    blocks = re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    inline = re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL))
    lines = [line.partition("  #")[0] for block in blocks for line in block.splitlines()]
    comments = [line.rpartition("in Compose: ")[2] for block in blocks for line in block.splitlines()]
    return (line.strip() for line in (*inline, *lines, *comments) if line.startswith(("thothy ", "docker ")))


NAMED = {f"annotations of {name}": rule["annotations"]["description"] for name, rule in ALERTS.items()} | {
    page.name: page.read_text(encoding="utf-8") for page in sorted(RUNBOOKS.glob("*.md"))
}


@pytest.mark.parametrize("text", NAMED.values(), ids=NAMED)
def test_only_commands_that_exist_are_named(text: str) -> None:
    """An operator at night must not be told to run a command that does not exist."""
    found = list(commands_of(text))
    assert found or not text.startswith("#"), "a runbook says what to run"
    for line in found:
        (_check_thothy if line.startswith("thothy ") else _check_compose)(line)


def _check_thothy(line: str) -> None:
    from typer.main import get_command

    from thothy_ai.cli import app

    command: Any = get_command(app)
    words = shlex.split(line.replace("{{ $labels.kind }}", "KIND"))[1:]
    while words and hasattr(command, "get_command") and not words[0].startswith("-"):
        name = words.pop(0)
        command = command.get_command(None, name)
        assert command is not None, f"{line}: no command {name}"
    options = {option for parameter in command.params for option in parameter.opts} | {"--help"}
    assert {word for word in words if word.startswith("--")} <= options, line
    named = [words[at + 1] for at, word in enumerate(words) if word == "--only"]
    assert set(named) <= set(CHECKS), line


def _check_compose(line: str) -> None:
    services = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))["services"]
    words = [word for word in shlex.split(line)[2:] if not word.startswith("-")]
    match words:
        case ["ps" | "restart" | "stop" | "exec", service, *_] | ["up" | "logs", service] | ["logs", _, service]:
            assert service in services, line
        case _:
            pytest.fail(line)


def test_wrong_commands_would_be_noticed() -> None:
    for line in ("thothy jobs lst", "thothy doctor --onyl redis", "thothy doctor --only nothing"):
        with pytest.raises(AssertionError):
            _check_thothy(line)
    for line in ("docker compose up -d nothing", "docker compose logs --since 1h nothing"):
        with pytest.raises(AssertionError):
            _check_compose(line)
    assert list(commands_of("`thothy a`\n```sh\nthothy b  # in Compose: docker c\n```\n")) == [
        "thothy a", "thothy b", "docker c",
    ]  # fmt: skip
