"""Alertmanager's configuration from the settings: to whom alerts go, how they are grouped, and which hide which.

Alertmanager reads no environment. JSON is YAML, thus the configuration needs no writer of YAML.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from pydantic import SecretStr

from thothy_ai.errors import ConfigError
from thothy_ai.settings import PREFIX, Settings

RECEIVER = "operators"
TITLE = (
    '{{ if eq .Status "firing" }}{{ .CommonLabels.severity | toUpper }}{{ else }}RESOLVED{{ end }}: '
    "{{ .GroupLabels.alertname }}"
)
TEXT = (
    "{{ range .Alerts }}{{ .Annotations.summary }}.\n{{ .Annotations.description }}\n"
    "Runbook: {{ .Annotations.runbook_url }}\n{{ end }}"
)
# While the first fires, the others only say what follows from it. Equal labels: of these.
CAUSES: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...] = (
    (
        "ThothyPostgresUnreachable",
        (
            "ThothyQueueStopped", "ThothyQueueGrowing", "ThothyDispatcherMissing", "ThothyReaperMissing",
            "ThothyLeaderStuck", "ThothyReaperRuleFailing", "ThothyLeasesNotReaped", "ThothyJobsNotAdvancing",
        ),
        (),
    ),
    ("ThothyRedisUnreachable", ("ThothyQueueStopped", "ThothyQueueGrowing", "ThothyReaperRuleFailing"), ()),
    ("ThothyDispatcherMissing", ("ThothyQueueStopped",), ()),
    ("ThothyWorkerMissing", ("ThothyQueueStopped", "ThothyQueueGrowing"), ()),
    ("ThothyReaperMissing", ("ThothyLeasesNotReaped",), ()),
    ("ThothyLeaderStuck", ("ThothyReaperRuleFailing",), ()),
    ("ThothyEngineDown", ("ThothyEngineStalled",), ("instance",)),
    ("ThothyEngineDown", ("ThothyQueueStopped", "ThothyQueueGrowing", "ThothyJobsNotAdvancing"), ()),
    ("ThothyQueueStopped", ("ThothyQueueGrowing",), ()),
    ("ThothyNothingPublishable", ("ThothyArtifactYieldDropped",), ("kind",)),
    ("ThothyFailuresFast", ("ThothyFailuresSlow", "ThothyDeadLetters"), ("kind",)),
)  # fmt: skip


def alertmanager_config(settings: Settings) -> dict[str, Any]:
    """The whole configuration. Raises `ConfigError` with a one-line message that shows no secret."""
    receiver = {"name": RECEIVER} | {
        name: configs
        for name, configs in (
            ("webhook_configs", _webhook(settings)),
            ("slack_configs", _slack(settings)),
            ("email_configs", _email(settings)),
        )
        if configs
    }
    return {
        "route": {
            "receiver": RECEIVER,
            "group_by": ["alertname"],  # five engines that are down are one message
            "group_wait": "30s",
            "group_interval": "5m",
            "repeat_interval": "4h",
            "routes": [
                {"receiver": RECEIVER, "matchers": ['severity="warning"'], "group_wait": "5m", "repeat_interval": "24h"}
            ],
        },
        "inhibit_rules": [_inhibit(*cause) for cause in CAUSES],
        "receivers": [receiver],
    }


def receivers(config: dict[str, Any]) -> Sequence[str]:
    """The ways in which a configuration delivers: "webhook", "slack", "email"."""
    return [name.removesuffix("_configs") for name in config["receivers"][0] if name.endswith("_configs")]


def _inhibit(cause: str, hidden: tuple[str, ...], equal: tuple[str, ...]) -> dict[str, Any]:
    rule = {"source_matchers": [f'alertname="{cause}"'], "target_matchers": [f'alertname=~"{"|".join(hidden)}"']}
    return rule | ({"equal": list(equal)} if equal else {})


def _webhook(settings: Settings) -> list[dict[str, Any]]:
    url = _url("alert_webhook_url", settings.alert_webhook_url)
    return [{"url": url, "send_resolved": True}] if url else []


def _slack(settings: Settings) -> list[dict[str, Any]]:
    url = _url("alert_slack_url", settings.alert_slack_url)
    if not url:
        return []
    shown = {"send_resolved": True, "title": TITLE, "text": TEXT}
    return [{"api_url": url} | shown | ({"channel": channel} if (channel := settings.alert_slack_channel) else {})]


def _email(settings: Settings) -> list[dict[str, Any]]:
    if settings.alert_email_to is None:
        return []
    for name in ("alert_email_from", "alert_smtp_host"):
        if getattr(settings, name) is None:
            raise ConfigError(f"{PREFIX}ALERT_EMAIL_TO needs {PREFIX}{name.upper()}")
    host, _, port = settings.alert_smtp_host.rpartition(":") if settings.alert_smtp_host else ("", "", "")
    if not host or not port.isdecimal():
        raise ConfigError(f"{PREFIX}ALERT_SMTP_HOST must look like smtp.example.com:587")
    mail: dict[str, Any] = {
        "to": settings.alert_email_to,
        "from": settings.alert_email_from,
        "smarthost": settings.alert_smtp_host,
        "send_resolved": True,
        "headers": {"Subject": TITLE},
        "text": TEXT,
        "html": "",
    }
    return [mail | _login(settings)]


def _login(settings: Settings) -> dict[str, Any]:
    user, password = settings.alert_smtp_user, settings.alert_smtp_password
    if (user is None) != (password is None):
        raise ConfigError(f"{PREFIX}ALERT_SMTP_USER and {PREFIX}ALERT_SMTP_PASSWORD belong together")
    if user is None or password is None:
        return {"require_tls": False}  # a relay that asks for no password is one of this network
    return {"auth_username": user, "auth_password": password.get_secret_value()}


def _url(name: str, secret: SecretStr | None) -> str | None:
    """A URL as text. Its message does not show it: those of Slack are secrets."""
    if secret is None:
        return None
    try:
        parts = urlsplit(secret.get_secret_value())
        valid = parts.scheme in {"http", "https"} and parts.hostname is not None and parts.port != 0
    except ValueError:
        valid = False
    if not valid:
        raise ConfigError(f"{PREFIX}{name.upper()} must look like https://host/path")
    return secret.get_secret_value()
