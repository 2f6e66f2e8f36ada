"""Alertmanager's configuration: the receivers that the settings name, and no half of one."""

from __future__ import annotations

import json
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.command_line import one_line, type_command
from tests.support.fetched import fetched
from thothy_ai.admin.alert_delivery import CAUSES, alertmanager_config, receivers
from thothy_ai.errors import ConfigError
from thothy_ai.settings import Settings

ROOT = Path(__file__).parents[4]
WEBHOOK = {"alert_webhook_url": "https://example.com/alerts"}
SLACK = {"alert_slack_url": "https://hooks.slack.com/services/T0/B0/word", "alert_slack_channel": "#ops"}
MAIL = {
    "alert_email_to": "ops@example.com, night@example.com",
    "alert_email_from": "thothy@example.com",
    "alert_smtp_host": "smtp.example.com:587",
}
LOGIN = {"alert_smtp_user": "thothy", "alert_smtp_password": "pass-word"}

pytestmark = pytest.mark.usefixtures("clean_environment")


def configured(**settings: str) -> dict[str, Any]:
    return alertmanager_config(Settings.load(**settings))


@pytest.mark.parametrize(
    ("settings", "ways"),
    [
        ({}, []),
        (WEBHOOK, ["webhook"]),
        (SLACK, ["slack"]),
        (MAIL | LOGIN, ["email"]),
        (WEBHOOK | SLACK | MAIL, ["webhook", "slack", "email"]),
    ],
)
def test_alertmanager_accepts_what_the_settings_name(settings: dict[str, str], ways: list[str], tmp_path: Path) -> None:
    config = configured(**settings)
    assert receivers(config) == ways
    file = tmp_path / "alertmanager.yml"
    file.write_text(json.dumps(config))
    tool = Path(fetched("fetch-prometheus")) / "amtool"
    done = subprocess.run([tool, "check-config", file], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_mail_is_sent_with_a_login_or_to_a_relay() -> None:
    [with_login] = configured(**MAIL, **LOGIN)["receivers"][0]["email_configs"]
    assert (with_login["auth_username"], with_login["auth_password"]) == ("thothy", "pass-word")
    assert "require_tls" not in with_login, "a password needs TLS"
    [relayed] = configured(**MAIL)["receivers"][0]["email_configs"]
    assert relayed["require_tls"] is False


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"alert_webhook_url": "example.com/word"}, "THOTHY_ALERT_WEBHOOK_URL must look like"),
        ({"alert_slack_url": "https://[word"}, "THOTHY_ALERT_SLACK_URL must look like"),
        ({"alert_slack_url": "https://host:port/word"}, "THOTHY_ALERT_SLACK_URL must look like"),
        ({"alert_email_to": "ops@example.com"}, "THOTHY_ALERT_EMAIL_TO needs THOTHY_ALERT_EMAIL_FROM"),
        (MAIL | {"alert_smtp_host": "smtp.example.com"}, "THOTHY_ALERT_SMTP_HOST must look like"),
        (MAIL | {"alert_smtp_password": "word"}, "belong together"),
        (MAIL | {"alert_smtp_user": "me"}, "belong together"),
    ],
)
def test_half_a_receiver_is_refused(settings: dict[str, str], says: str) -> None:
    with pytest.raises(ConfigError, match=says) as caught:
        configured(**settings)
    assert "word" not in str(caught.value).replace("PASSWORD", "")


def test_what_hides_another_alert_exists() -> None:
    rules = yaml.safe_load((ROOT / "deploy/prometheus/alerts.yml").read_text())
    alerts = {rule.get("alert") for group in rules["groups"] for rule in group["rules"]}
    for cause, hidden, _ in CAUSES:
        assert {cause, *hidden} <= alerts
        assert cause not in hidden


def test_the_command_replaces_the_file(tmp_path: Path) -> None:
    file = tmp_path / "alertmanager.yml"
    nobody = type_command("alertmanager-config", "--output", file)
    assert nobody.stdout == f"{file}: alerts go to no receiver.\n"
    assert "no receiver is set" in one_line(nobody)
    environment = {"THOTHY_ALERT_WEBHOOK_URL": WEBHOOK["alert_webhook_url"]}
    done = type_command("alertmanager-config", "--output", file, environment=environment)
    assert done.output == f"{file}: alerts go to webhook.\n"
    assert stat.S_IMODE(file.stat().st_mode) == 0o644
    printed = type_command("alertmanager-config", environment=environment)
    assert json.loads(printed.output) == json.loads(file.read_text())
    lost = type_command("alertmanager-config", "--output", tmp_path / "no" / "folder", exit_code=1)
    assert "cannot be written" in lost.stderr


def test_the_command_refuses_half_a_receiver() -> None:
    done = type_command("alertmanager-config", exit_code=2, environment={"THOTHY_ALERT_EMAIL_TO": "ops@example.com"})
    assert one_line(done) == "THOTHY_ALERT_EMAIL_TO needs THOTHY_ALERT_EMAIL_FROM"
