"""What the console says while a source has not been read, or does not know a figure."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import create_engine

from thothy_ai.admin.top.polling import Unreachable
from thothy_ai.http.console.site import Site
from thothy_ai.settings import Settings

UNREAD = Unreachable("not read yet")


def site(prometheus: str | None = None) -> Site:
    return Site(Settings.load(prometheus_url=prometheus), create_engine("postgresql+psycopg://nowhere"))


def poller(latest: object, *, polled: bool = True) -> Any:
    return SimpleNamespace(latest=latest, polled=SimpleNamespace(is_set=lambda: polled))


@pytest.mark.parametrize(
    ("url", "pollers", "says"),
    [
        (None, {}, "no Prometheus is configured"),
        ("http://p:9090", {}, "Prometheus has not been read yet"),
        ("http://p:9090", {"alerts": poller(UNREAD, polled=False)}, "Prometheus has not been read yet"),
        ("http://p:9090", {"alerts": poller(Unreachable("p: refused"))}, "Prometheus does not answer at p: refused"),
        ("http://p:9090", {"alerts": poller(())}, None),
    ],
)
def test_why_alerts_are_not_judged(url: str | None, pollers: dict[str, Any], says: str | None) -> None:
    readings = site(url).readings
    readings._pollers = pollers
    unjudged = readings.unjudged()
    assert unjudged is None if says is None else unjudged is not None and unjudged[0].startswith(says)


@pytest.mark.parametrize(
    ("pollers", "quiet"),
    [
        ({}, False),
        ({"fleet": poller(Unreachable("slow")), "workers": poller(UNREAD, polled=False)}, False),
        ({"fleet": poller(Unreachable("slow")), "alerts": poller(UNREAD, polled=False)}, True),
    ],
)
def test_no_alert_fires_only_once_all_have_been_judged(pollers: dict[str, Any], quiet: bool) -> None:
    shown = site()
    shown.readings._pollers = pollers
    board = shown._templates.get_template("now_board.html").render(now=shown.readings, viewer=None)
    assert ("No alert fires." in board) is quiet
    assert ("Not all sources have been read yet" in board) is not quiet


@pytest.mark.parametrize(("used", "says"), [(3 << 30, "3.0 of 80.0 GiB"), (None, ">-<")])
def test_memory_whose_use_is_not_known_is_a_dash(used: int | None, says: str) -> None:
    of = SimpleNamespace(
        lives=True, running_sequences=1, waiting_sequences=0, kv_used=0.5, memory_used=used, memory_total=80 << 30
    )
    template = site()._templates.from_string('{% import "parts.html" as parts %}{{ parts.gauges(of) }}')
    assert says in template.render(of=of)
