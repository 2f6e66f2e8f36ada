"""A real Prometheus with our rules and a real Alertmanager with our configuration: an alert reaches a webhook."""

from __future__ import annotations

import json
import queue
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
import yaml
from prometheus_client import CollectorRegistry, Metric, start_http_server
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from tests.support.fetched import fetched
from tests.support.patience import PATIENCE
from thothy_ai.admin.alert_delivery import alertmanager_config
from thothy_ai.embedded.process import free_port
from thothy_ai.queue.collector import QueueReading, families
from thothy_ai.queue.status import QueueStatus
from thothy_ai.settings import Settings

ROOT = Path(__file__).parents[3]
ANSWERS = QueueReading(QueueStatus({}, paused=False, changed_at=None, note=None))
AWAY = QueueReading(None)


class Webhook:
    """Keeps the alerts that were posted to it."""

    def __init__(self) -> None:
        posted: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._posted = posted
        self._unread: list[dict[str, Any]] = []

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                posted.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Nothing."""

        self.server = HTTPServer(("127.0.0.1", 0), Handler)

    def until(self, name: str, status: str) -> dict[str, Any]:
        """The first alert of this name and status that no call has returned yet: several may arrive in any order."""
        while True:
            for number, alert in enumerate(self._unread):
                if (alert["labels"]["alertname"], alert["status"]) == (name, status):
                    return self._unread.pop(number)
            self._unread += self._posted.get(timeout=PATIENCE)["alerts"]

    def names(self) -> set[str]:
        """Of all alerts that have arrived and that no call has returned."""
        while not self._posted.empty():
            self._unread += self._posted.get()["alerts"]
        return {alert["labels"]["alertname"] for alert in self._unread}


class Exported(Collector):
    """What a dispatcher exports of this reading, and which roles have a leader.

    Samples have timestamps, because a busy machine misses scrapes: otherwise a series would end at the first one that
    is missed, as if nothing led.
    """

    def __init__(self) -> None:
        self.reading = ANSWERS
        self.leads = {"dispatcher": 1, "reaper": 1}

    def collect(self) -> Iterator[Metric]:
        leads = GaugeMetricFamily("thothy_leads", "As of the queue's.", labels=["role"])
        for role, value in self.leads.items():
            leads.add_metric([role], value)
        for family in (*families(self.reading), leads):
            family.samples = [sample._replace(timestamp=time.time()) for sample in family.samples]
            yield family


@dataclass
class World:
    exported: Exported
    webhook: Webhook
    alertmanager: str

    def alert(self, name: str) -> dict[str, Any] | None:
        """An alert as Alertmanager has it."""
        with urllib.request.urlopen(f"{self.alertmanager}/api/v2/alerts") as answer:
            return next((found for found in json.load(answer) if found["labels"]["alertname"] == name), None)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with ExitStack() as stack:
        exported, target = _exporter(stack)
        webhook = _webhook(stack)
        programs = Path(fetched("fetch-prometheus"))
        alertmanager = f"http://127.0.0.1:{free_port()}"
        prometheus = f"http://127.0.0.1:{free_port()}"
        url = f"http://127.0.0.1:{webhook.server.server_port}/alerts"
        (tmp_path / "alertmanager.yml").write_text(json.dumps(_quick_delivery(url)))
        (tmp_path / "prometheus.yml").write_text(json.dumps(_quick_scraping(target, alertmanager)))
        (tmp_path / "alerts.yml").write_text(yaml.dump(_quick_rules()))
        arguments = (f"--storage.tsdb.path={tmp_path / 'tsdb'}", f"--web.user-assets={ROOT / 'docs/runbooks'}")
        stack.enter_context(_running(programs / "prometheus", tmp_path, prometheus, arguments))
        _wait(lambda: _is_quiet(prometheus))  # nothing leads before the first scrape, which must not be reported
        arguments = (f"--storage.path={tmp_path / 'am'}", "--cluster.listen-address=")
        stack.enter_context(_running(programs / "alertmanager", tmp_path, alertmanager, arguments))
        yield World(exported, webhook, alertmanager)


def _exporter(stack: ExitStack) -> tuple[Exported, str]:
    registry, exported = CollectorRegistry(), Exported()
    registry.register(exported)
    server, thread = start_http_server(0, "127.0.0.1", registry)
    stack.callback(thread.join)
    stack.callback(server.server_close)
    stack.callback(server.shutdown)
    return exported, f"127.0.0.1:{server.server_port}"


def _webhook(stack: ExitStack) -> Webhook:
    webhook = Webhook()
    thread = threading.Thread(target=webhook.server.serve_forever)
    thread.start()
    stack.callback(thread.join)
    stack.callback(webhook.server.server_close)
    stack.callback(webhook.server.shutdown)
    return webhook


def _quick_delivery(url: str) -> dict[str, Any]:
    """As configured, but at once."""
    config = alertmanager_config(Settings.load(alert_webhook_url=url))
    for route in (config["route"], *config["route"]["routes"]):
        route |= {"group_wait": "1s", "group_interval": "1s"}
    return config


def _quick_scraping(target: str, alertmanager: str) -> dict[str, Any]:
    """As deployed, but each job has the same target."""
    config: dict[str, Any] = yaml.safe_load((ROOT / "deploy/prometheus/prometheus.yml").read_text())
    static = [{"targets": [target]}]
    return {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
        "rule_files": config["rule_files"],
        "alerting": {"alertmanagers": [{"static_configs": [{"targets": [alertmanager.removeprefix("http://")]}]}]},
        "scrape_configs": [{"job_name": job["job_name"], "static_configs": static} for job in config["scrape_configs"]],
    }


def _quick_rules() -> dict[str, Any]:
    """As deployed, but nothing has to last."""
    rules: dict[str, Any] = yaml.safe_load((ROOT / "deploy/prometheus/alerts.yml").read_text())
    for group in rules["groups"]:
        group.pop("interval", None)
        for rule in group["rules"]:
            rule.pop("for", None)
    return rules


@contextmanager
def _running(program: Path, folder: Path, address: str, arguments: tuple[str, ...]) -> Iterator[None]:
    listen = address.removeprefix("http://")
    command = [program, f"--config.file={folder / program.name}.yml", f"--web.listen-address={listen}"]
    with (folder / f"{program.name}.log").open("w+") as log:
        process = subprocess.Popen(
            [*command, f"--web.external-url={address}", *arguments], cwd=program.parent, stdout=log, stderr=log
        )
        try:
            _wait(lambda: _ready(process, address), log.name)
            yield
        finally:
            process.kill()
            process.wait()


def _ready(process: subprocess.Popen[bytes], address: str) -> bool:
    assert process.poll() is None, "it ended"
    try:
        with urllib.request.urlopen(f"{address}/-/ready"):
            return True
    except OSError:
        return False


def _is_quiet(prometheus: str) -> bool:
    """Whether it has samples, and no alert fires."""
    query = urlencode({"query": "thothy_leads unless on () ALERTS"})
    with urllib.request.urlopen(f"{prometheus}/api/v1/query?{query}") as answer:
        return bool(json.load(answer)["data"]["result"])


def _wait(true: Callable[[], object], log: str = "") -> None:
    deadline = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < deadline, Path(log).read_text() if log else "in vain"
        time.sleep(0.05)


def test_an_alert_arrives_with_its_runbook_and_is_resolved(world: World) -> None:
    world.exported.reading = AWAY
    alert = world.webhook.until("ThothyPostgresUnreachable", "firing")
    notes: Mapping[str, str] = alert["annotations"]
    assert alert["labels"]["severity"] == "critical"
    assert notes["summary"] == "The dispatcher cannot reach Postgres"
    with urllib.request.urlopen(notes["runbook_url"]) as page:
        assert page.read() == (ROOT / "docs/runbooks/ThothyPostgresUnreachable.md").read_bytes()
    world.exported.reading = ANSWERS
    world.webhook.until("ThothyPostgresUnreachable", "resolved")


def test_what_only_follows_from_a_cause_is_not_told(world: World) -> None:
    world.exported.reading = AWAY
    world.webhook.until("ThothyPostgresUnreachable", "firing")
    world.exported.leads["reaper"] = 0

    def inhibited() -> bool:
        found = world.alert("ThothyReaperMissing")
        return found is not None and bool(found["status"]["inhibitedBy"])

    _wait(inhibited)
    assert "ThothyReaperMissing" not in world.webhook.names()
    world.exported.reading = ANSWERS
    world.webhook.until("ThothyPostgresUnreachable", "resolved")
    world.webhook.until("ThothyReaperMissing", "firing")
