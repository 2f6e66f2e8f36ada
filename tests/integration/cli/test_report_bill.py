"""`thothy report bill`, `thothy report drains` and `thothy report check`, as they are typed."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import Engine, text

from tests.integration.cli.test_report_html import NASTY, fill
from tests.support.command_line import Run, one_line
from thothy_ai.queue.books import close_hours
from thothy_ai.queue.drain_records import DrainRecords

GAP = 30.0


@pytest.fixture
def filled(engine: Engine) -> None:
    """A drain of 100 hooks that ended a minute ago."""
    fill(engine, ["hook", NASTY], 100, timedelta(minutes=40))
    with engine.begin() as connection:
        for table in ("job", "attempt"):
            connection.execute(text(f"UPDATE {table} SET finished_at = finished_at - interval '1 minute'"))
        connection.execute(text("UPDATE artifact SET created_at = created_at - interval '1 minute'"))
        connection.execute(text("UPDATE job SET enqueued_at = :at, not_before = :at"), {"at": _start()})
        connection.execute(text("UPDATE engine_session SET busy_seconds = 1"))
        assert len(DrainRecords().record(connection, GAP)) == 1


def _start() -> datetime:
    return datetime.now(UTC) - timedelta(minutes=45)


@pytest.mark.usefixtures("filled")
class TestFilled:
    def test_drains(self, run: Run, tmp_path: Path) -> None:
        [drain] = json.loads(run("report", "drains", "--json").stdout)
        assert (drain["jobs"], drain["succeeded"], drain["dead"], drain["expired"]) == (100, 80, 10, 10)
        assert (drain["form_yield"], drain["peak_depth"], drain["emptied"]) == (0.8, 100, True)
        shown = run("report", "drains").stdout.splitlines()
        assert shown[0].split()[:4] == ["from", "took", "jobs", "failed"]
        assert " 80.0% " in shown[2]
        done = run("report", "drains", "--html", tmp_path / "d.html")
        assert done.stderr == f"Report written to {tmp_path / 'd.html'}.\n"
        page = (tmp_path / "d.html").read_text(encoding="utf-8")
        assert page.count("<svg") == 4
        assert "80.0%" in page
        assert "<script" not in page

    def test_drains_of_another_window(self, run: Run) -> None:
        assert run("report", "drains", "--until", "2h").stdout.startswith("No drain is recorded from ")
        assert json.loads(run("report", "drains", "--since", "1h", "--until", "50m", "--json").stdout) == []
        assert len(json.loads(run("report", "drains", "--since", "1h", "--until", "20m", "--json").stdout)) == 1

    def test_bill(self, run: Run, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
        shown = run("report", "bill").stdout
        assert shown.startswith("Bill in GPU-seconds; with THOTHY_PRICE_PER_COMPUTE_HOUR also in money\n")
        assert NASTY in shown
        assert "\nidle " in shown
        assert {"form yield", "clean yield"} <= {head.strip() for head in re.split(r"  +|\n", shown)}
        assert "\nNobody has decided on an artifact yet: what people approve per hour is not known.\n" in shown
        with engine.begin() as connection:
            connection.execute(text("UPDATE job SET review = 'approved' WHERE state = 'succeeded' AND kind = 'hook'"))
        assert "approved per hour" in run("report", "bill").stdout
        assert "Nobody has decided" not in run("report", "bill").stdout
        monkeypatch.setenv("THOTHY_PRICE_PER_COMPUTE_HOUR", "3600")
        monkeypatch.setenv("THOTHY_CURRENCY", "EUR")
        assert "Bill in GPU-seconds and EUR, at 3,600.00 per GPU-hour" in run("report", "--since", "1h").stdout
        document = json.loads(run("report", "bill", "--by", "hour", "--json").stdout)
        assert document["total"]["cost"] == pytest.approx(document["total"]["busy_seconds"])
        assert sum(hour["accepted"] for hour in document["by_hour"].values()) == 80
        assert document["by_tenant"]["t"]["cost_per_artifact"] == pytest.approx(1 / 80)
        monkeypatch.setenv("THOTHY_MODEL_PRICES", "other=1,third=x")
        assert "THOTHY_MODEL_PRICES: must be NAME=PRICE" in run("report", "bill", exit_code=2).stderr

    def test_check(self, run: Run, engine: Engine) -> None:
        assert "0 settled engine sessions" in run("report", "check").stdout
        with engine.begin() as connection:
            connection.execute(text("UPDATE engine_session SET ended_at = now(), settled_at = now()"))
        assert run("report", "check").stdout == (
            "1 settled engine session: busy for 1.0 s, billed for 1.0 s, past the queue for 0.0 s (0.0 s over HTTP),"
            " unattributed: 0.0 s; 0 not settled yet.\n"
        )
        with engine.begin() as connection:
            connection.execute(text("UPDATE engine_session SET busy_seconds = 3, direct_seconds = 2"))
        assert (
            "billed for 1.0 s, past the queue for 2.0 s (0.0 s over HTTP), unattributed: 0.0 s"
            in run("report", "check").stdout
        )
        shown = run("report", "--since", "1h").stdout
        assert "Requests past the queue: 2.0 GPU-seconds since the engines' start\n" in shown
        assert "Unattributed" not in shown
        close_hours(engine)
        with engine.begin() as connection:
            connection.execute(text("UPDATE engine_session SET busy_seconds = 5"))
        done = run("report", "check", exit_code=1)
        assert "past the queue for 2.0 s (0.0 s over HTTP), unattributed: 2.0 s" in done.stdout
        assert (
            "was busy for 5.0 s, for 2.0 s past the queue, and its attempts are billed for 1.0 s: 2.0 s are una"
            in done.stdout
        )
        assert "\nUnattributed: 2.0 GPU-seconds since the engines' start\n" in run("report", "--since", "1h").stdout
        assert len(json.loads(run("report", "check", "--json", exit_code=1).stdout)["findings"]) == 1


def test_nothing_is_recorded(run: Run, tmp_path: Path) -> None:
    assert json.loads(run("report", "drains", "--json").stdout) == []
    run("report", "drains", "--html", tmp_path / "d.html")
    assert "No drain ended in this window." in (tmp_path / "d.html").read_text(encoding="utf-8")
    assert json.loads(run("report", "bill", "--json").stdout)["total"]["attempts"] == 0
    assert "0 settled engine sessions" in run("report", "check").stdout


def test_options_that_stand_before_the_name(run: Run) -> None:
    said = one_line(run("report", "--since", "2h", "drains", exit_code=2))
    assert said == "options of `thothy report drains` follow its name (see `thothy report --help`)"
