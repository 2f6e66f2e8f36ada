"""Makes Alertmanager's configuration from the settings: receivers, groups, and which alerts hide others.

Alertmanager reads no environment variables. It accepts JSON, since JSON is YAML.
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
# While the first alert fires, the others are its consequences if they agree with it in the labels of the last tuple.
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
    receiver: dict[str, Any] = {"name": RECEIVER}
    if url := _url("alert_webhook_url", settings.alert_webhook_url):
        receiver["webhook_configs"] = [{"url": url, "send_resolved": True}]
    if url := _url("alert_slack_url", settings.alert_slack_url):
        slack = {"api_url": url, "send_resolved": True, "title": TITLE, "text": TEXT}
        channel = settings.alert_slack_channel
        receiver["slack_configs"] = [slack | ({"channel": channel} if channel else {})]
    if settings.alert_email_to is not None:
        receiver["email_configs"] = [_email(settings)]
    return {
        "route": {
            "receiver": RECEIVER,
            "group_by": ["alertname"],  # one message about five engines that are down
            "group_wait": "30s",
            "group_interval": "5m",
            "repeat_interval": "4h",
            "routes": [
                {"receiver": RECEIVER, "matchers": ['severity="warning"'], "group_wait": "5m", "repeat_interval": "24h"}
            ],
        },
        "inhibit_rules": [
            {
                "source_matchers": [f'alertname="{cause}"'],
                "target_matchers": [f'alertname=~"{"|".join(hidden)}"'],
                **({"equal": list(equal)} if equal else {}),
            }
            for cause, hidden, equal in CAUSES
        ],
        "receivers": [receiver],
    }


def receivers(config: dict[str, Any]) -> Sequence[str]:
    """The kinds of receivers in a configuration: "webhook", "slack", "email"."""
    return [name.removesuffix("_configs") for name in config["receivers"][0] if name.endswith("_configs")]


def _email(settings: Settings) -> dict[str, Any]:
    for name in ("alert_email_from", "alert_smtp_host"):
        if getattr(settings, name) is None:
            raise ConfigError(f"{PREFIX}ALERT_EMAIL_TO needs {PREFIX}{name.upper()}")
    host, _, port = settings.alert_smtp_host.rpartition(":") if settings.alert_smtp_host else ("", "", "")
    if not host or not port.isdecimal():
        raise ConfigError(f"{PREFIX}ALERT_SMTP_HOST must look like smtp.example.com:587")
    user, password = settings.alert_smtp_user, settings.alert_smtp_password
    if (user is None) != (password is None):
        raise ConfigError(f"{PREFIX}ALERT_SMTP_USER and {PREFIX}ALERT_SMTP_PASSWORD belong together")
    login: dict[str, Any] = {"require_tls": False}  # a relay without a password is in the local network
    if user is not None and password is not None:
        login = {"auth_username": user, "auth_password": password.get_secret_value()}
    return {
        "to": settings.alert_email_to,
        "from": settings.alert_email_from,
        "smarthost": settings.alert_smtp_host,
        "send_resolved": True,
        "headers": {"Subject": TITLE},
        "text": TEXT,
        "html": "",
        **login,
    }


def _url(name: str, secret: SecretStr | None) -> str | None:
    """A URL as text. Error messages do not show it, because Slack's URLs are secrets."""
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
