"""Past drains and the bill: their pages, the plots beside their tables, and CSV."""

from __future__ import annotations

import csv
import json
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path
from uuid import uuid4

import pytest
from sqlalchemy import insert

from tests.support.browser import Browser
from tests.support.console import Console
from tests.support.fetched import fetched
from thothy_ai.db.console_links import make_link
from thothy_ai.db.models import ArtifactRow, AttemptRow, DrainRow, EngineSessionRow, JobRow

BEGAN = datetime.now(UTC).replace(microsecond=123456) - timedelta(hours=3)
ENDED = BEGAN + timedelta(minutes=50)
ADDRESS = f"/drains/{BEGAN:%Y-%m-%dT%H:%M:%S.%f}Z"
SERIES = """[...document.querySelectorAll('.chart')].map(chart => [chart.querySelectorAll('canvas').length,
    chart.querySelectorAll('.u-series').length, chart.querySelectorAll('tbody tr').length > 0])"""
BARRIERS = """axe.run().then(found => found.violations.filter(each => ['serious', 'critical'].includes(each.impact))
    .map(each => [each.id, each.nodes.map(node => node.html).slice(0, 3)]))"""
HOVER = """(over => { const box = over.getBoundingClientRect();
    const at = {clientX: box.x + box.width / 2, clientY: box.y + 9};
    for (const kind of ['mouseenter', 'mousemove']) over.dispatchEvent(new MouseEvent(kind, at));
    })(document.querySelector('.u-over'))"""
INKED = """[...document.querySelectorAll('canvas')].map(each => each.getContext('2d')
    .getImageData(0, 0, each.width, each.height).data.some(value => value > 0))"""


@pytest.fixture
def drained(console: Console) -> Console:
    """A drain of 50 jobs of two kinds: one in five is dead."""
    box, same = uuid4(), {"tenant": "ours", "source_key": "s", "request_digest": "d", "max_attempts": 3}
    jobs, attempts, artifacts = [], [], []
    for number in range(50):
        end, kind, fine = BEGAN + timedelta(minutes=number + 1), f"k{number % 2}", bool(number % 5)
        job = {"id": uuid4(), "kind": kind, "enqueued_at": BEGAN, "not_before": BEGAN, "finished_at": end, **same}
        jobs.append(
            job | ({"state": "succeeded", "reason": None} if fine else {"state": "dead", "reason": "truncated"})
        )
        spent = {"engine_session_id": box, "started_at": end - timedelta(seconds=9), "compute_seconds": 2.0}
        outcome = {"outcome": "succeeded", "reason": None} if fine else {"outcome": "rejected", "reason": "truncated"}
        of = {"job_id": job["id"], "attempt": 1, "tenant": "ours", "kind": kind}
        attempts.append({**of, "worker": "w", "finished_at": end, **spent, **outcome})
        verdict = {"verdict": "accepted", "reason": None} if fine else {"verdict": "rejected", "reason": "truncated"}
        artifacts.append({**of, "locale": "en", "body": {"echo": "x"}, "text": "x", **verdict})
    session = {"id": box, "model": "m", "model_name": "m", "device": "cuda:0", "dtype": "bfloat16", "gpus": 1}
    session |= {"num_blocks": 1, "block_size": 16, "started_at": BEGAN, "heartbeat_at": ENDED, "ended_at": ENDED}
    drain = {"started_at": BEGAN, "ended_at": ENDED, "emptied": True, "succeeded": 40, "dead": 10, "attempts": 50}
    drain |= {"with_output": 50, "with_artifact": 36, "clean": 36, "peak_depth": 50, "wait_p50": 1500.0, "run_p50": 9.0}
    with console.queue.engine.begin() as connection:
        for row, values in (
            (EngineSessionRow, [session]), (JobRow, jobs), (AttemptRow, attempts), (ArtifactRow, artifacts),
            (DrainRow, [drain]),
        ):  # fmt: skip
            connection.execute(insert(row), values)
    return console


def test_a_drain_has_a_page_and_its_numbers_as_csv(drained: Console) -> None:
    with drained.signed_in() as client:
        assert f'href="/console{ADDRESS}"' in client.get("/drains").text
        page = client.get(ADDRESS)
        assert page.status_code == 200, page.text
        assert "rejected: truncated" in page.text

        def table(name: str) -> list[dict[str, str]]:
            answer = client.get(f"{ADDRESS}/{name}.csv", params={"by": "tenant"})
            assert answer.headers["content-type"].startswith("text/csv")
            return list(csv.DictReader(StringIO(answer.text)))

        timeline = table("timeline")
        assert sum(int(row["succeeded"]) for row in timeline) == 40
        assert sum(int(row["dead"]) for row in timeline) == 10  # also the last, which ended with the drain
        assert {row["run_p50"] for row in timeline} - {""} == {"9.0"}
        [waste] = table("waste")
        assert (waste["outcome"], waste["reason"], waste["attempts"]) == ("rejected", "truncated", "10")
        assert float(waste["wasted_seconds"]) == 20
        assert {row["kind"]: row["with_output"] for row in table("yields")} == {"k0": "25", "k1": "25"}
        [bill] = table("bill")
        assert (bill["tenant"], bill["accepted"], float(bill["busy_seconds"])) == ("ours", "40", 100.0)
        [row] = csv.DictReader(StringIO(client.get("/drains/drains.csv").text))
        assert (row["jobs"], row["peak_depth"], row["to_edit"], row["form_yield"]) == ("50", "50", "4", "0.72")


def test_what_was_not_recorded_is_not_found(drained: Console) -> None:
    later = (BEGAN + timedelta(seconds=1)).isoformat()
    with drained.signed_in() as client, drained.signed_in(tenant="ours") as tenant:
        for wrong in ("yesterday", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59.999999-14:00", later):
            assert client.get(f"/drains/{wrong}").status_code == 404, wrong
        for wrong in ("/drains/moon.csv", "/drains/timeline.csv", f"{ADDRESS}/moon.csv"):
            assert client.get(wrong).status_code == 404, wrong
        assert client.get(ADDRESS, params={"by": "moon"}).status_code == 400
        for page in (ADDRESS, f"{ADDRESS}/bill.csv", "/drains/waste.csv"):
            assert tenant.get(page).status_code == 403


def test_plots_are_drawn_from_the_tables_under_the_policy(drained: Console, chromium: Browser) -> None:
    token = make_link(drained.queue.engine, "Ada", "operator", None)
    chromium.load(f"{drained.address}/console/enter?token={token}", 1440)
    chromium.press("button.main")
    axe = Path(fetched("fetch-axe")).read_text()
    for width, dark in ((360, True), (1440, False)):
        of_one = [[1, 4, True], [1, 3, True], [1, 3, True], [1, 3, True]]
        for page, series in ((ADDRESS, of_one), ("/drains", [[1, 4, True]])):
            chromium.load(f"{drained.address}/console{page}", width, dark=dark)
            assert chromium.evaluate(SERIES) == series
            chromium.until(f"{INKED}.every(Boolean)")
            assert chromium.evaluate("document.documentElement.scrollWidth") <= width
            chromium.evaluate(f"void eval({json.dumps(axe)})")
            assert chromium.evaluate(BARRIERS) == [], width
            assert chromium.refused == []
    chromium.evaluate(HOVER)
    said = f"{BEGAN:%m-%d %H:%M}: with an artifact 36, to edit 4, failed 10, cancelled 0"
    chromium.until(f"document.querySelector('.at').textContent === {said!r}")
