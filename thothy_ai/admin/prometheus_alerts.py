"""`PrometheusAlerts`: the pending and firing alerts in Prometheus, among those that only Prometheus can judge."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any
from urllib.request import Request, urlopen

from thothy_ai.admin.alarms import BY_PROMETHEUS, Alarm
from thothy_ai.errors import ThothyError

ANSWER_SECONDS = 3.0
MAX_BYTES = 4_000_000


class PrometheusAlerts:
    """Reads the alerts of one Prometheus server through its HTTP API."""

    def __init__(self, url: str) -> None:
        self._request = Request(f"{url.rstrip('/')}/api/v1/alerts")  # noqa: S310 - the setting allows only HTTP

    def read(self) -> list[Alarm]:
        """The alerts. Raises `ThothyError` if there is no answer, or not one of Prometheus."""
        url = self._request.full_url
        try:
            with urlopen(self._request, timeout=ANSWER_SECONDS) as answer:  # noqa: S310
                alerts = json.loads(answer.read(MAX_BYTES))["data"]["alerts"]
            return [_alarm(each) for each in alerts if each["labels"]["alertname"] in BY_PROMETHEUS]
        except OSError as error:
            raise ThothyError(f"{url}: {getattr(error, 'reason', error)}") from error
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ThothyError(f"{url}: not an answer of Prometheus") from error

    def close(self) -> None:
        """Do nothing: no connection is kept open."""


def _alarm(alert: dict[str, Any]) -> Alarm:
    labels, since = alert["labels"], datetime.fromisoformat(alert["activeAt"])
    says = alert.get("annotations", {}).get("summary") or labels["alertname"]
    held = max(0.0, (datetime.now(UTC) - since).total_seconds())
    return Alarm(labels["alertname"], labels.get("severity", "warning"), says, held, alert["state"] == "firing")
