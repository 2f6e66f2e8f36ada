"""The alerts that a Prometheus says, over its HTTP API."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from tests.support.patience import PATIENCE
from thothy_ai.admin import prometheus_alerts
from thothy_ai.admin.prometheus_alerts import PrometheusAlerts
from thothy_ai.errors import ThothyError

GROWS = {
    "labels": {"alertname": "ThothyQueueGrowing", "severity": "warning"},
    "annotations": {"summary": "The queue grows"},
    "state": "firing",
    "activeAt": "2026-01-31T17:00:00.123456789Z",
}
STUCK = {"labels": {"alertname": "ThothyLeaderStuck"}, "state": "pending", "activeAt": "2026-01-31T17:00:00Z"}
OURS = {"labels": {"alertname": "ThothyEngineDown"}, "state": "firing", "activeAt": "2026-01-31T17:00:00Z"}


class Answer(BaseHTTPRequestHandler):
    said: Any = None

    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/prom/api/v1/alerts" else 404)
        self.end_headers()
        self.wfile.write(self.said)

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def prometheus(monkeypatch: pytest.MonkeyPatch) -> Iterator[PrometheusAlerts]:
    monkeypatch.setattr(prometheus_alerts, "ANSWER_SECONDS", PATIENCE)
    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield PrometheusAlerts(f"http://127.0.0.1:{server.server_port}/prom/")
        server.shutdown()
        thread.join()


def test_those_that_are_not_judged_here_are_taken(prometheus: PrometheusAlerts) -> None:
    Answer.said = json.dumps({"status": "success", "data": {"alerts": [GROWS, STUCK, OURS]}}).encode()
    grows, stuck = prometheus.read()
    assert (grows.name, grows.severity, grows.says, grows.fires) == (
        "ThothyQueueGrowing", "warning", "The queue grows", True
    )  # fmt: skip
    assert grows.seconds > 0
    assert (stuck.name, stuck.says, stuck.fires) == ("ThothyLeaderStuck", "ThothyLeaderStuck", False)


@pytest.mark.parametrize(
    "said", [b"", b"<html>", b"[]", b"{}", b'{"data": {"alerts": [1]}}', b'{"data": {"alerts": 7}}']
)
def test_what_is_no_answer_of_prometheus_is_an_error(prometheus: PrometheusAlerts, said: bytes) -> None:
    Answer.said = said
    with pytest.raises(ThothyError, match="not an answer of Prometheus"):
        prometheus.read()


def test_nobody_answers() -> None:
    with pytest.raises(ThothyError, match=r"alerts: .*refused"):
        PrometheusAlerts("http://127.0.0.1:9").read()
