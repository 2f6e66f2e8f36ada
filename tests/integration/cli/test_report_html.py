"""`thothy report --html`: the numbers of the page, what it must not hold, and how it looks in a browser."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from html import unescape
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from sqlalchemy import Engine, insert

from tests.support.browser import Browser, browser
from tests.support.command_line import Run, one_line
from tests.support.fetched import fetched
from thothy_ai.db.models import ArtifactRow, AttemptRow, EngineSessionRow, JobRow

NASTY = "<script>alert(1)</script>&\"'"
EMPTY = "No jobs finished in this window."
PLOTS = 7
WIDTHS = (1280, 390)  # pixels
BOXES = """[...document.querySelectorAll('.plot')].map(plot => [...plot.querySelectorAll('svg')]
    .map(svg => svg.getBoundingClientRect()).filter(box => box.width > 0 && box.height > 0)
    .map(box => [box.left, box.right, box.height]))"""
TOO_WIDE = """[...document.querySelectorAll('svg')].filter(svg => svg.getBoundingClientRect().width).flatMap(svg =>
    [...svg.querySelectorAll('text')].filter(text => {
        const a = text.getBoundingClientRect(), b = svg.getBoundingClientRect();
        return a.left < b.left - 2 || a.right > b.right + 12;
    }).map(text => text.textContent))"""


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(fetched("fetch-chromium"), tmp_path_factory.mktemp("chromium")) as started:
        yield started


def fill(engine: Engine, kinds: list[str], jobs: int, span: timedelta) -> None:
    """Rows of `jobs` jobs that ended within `span` before now: of ten, eight succeeded, one is dead, one expired."""
    now, box = datetime.now(UTC), uuid4()
    with engine.begin() as connection:
        sizes = {"model": NASTY, "dtype": "bfloat16", "num_blocks": 100, "block_size": 16, "gpus": 1}
        times = {"started_at": now - span, "heartbeat_at": now, "ended_at": None}
        connection.execute(insert(EngineSessionRow), {"id": box, "device": "cuda:0", **sizes, **times})
        for table, rows in zip((JobRow, AttemptRow, ArtifactRow), _rows(kinds, jobs, span, now, box), strict=True):
            connection.execute(insert(table), rows)


def _rows(
    kinds: list[str], jobs: int, span: timedelta, now: datetime, box: UUID
) -> tuple[list[dict[str, object]], ...]:
    made: tuple[list[dict[str, object]], ...] = ([], [], [])
    for n in range(jobs):
        end = now - span * ((n + 1) / (jobs + 2))
        state = "dead" if n % 10 == 8 else "expired" if n % 10 == 9 else "succeeded"
        verdict = "accepted" if state == "succeeded" else "rejected"
        reason = None if state == "succeeded" else NASTY
        one = {"kind": kinds[n % len(kinds)], "tenant": "t"}
        fixed = {"source_key": "s", "request_digest": "d", "max_attempts": 3}
        start = end - timedelta(milliseconds=100 + n)
        times = {"enqueued_at": start - timedelta(seconds=n % 50), "not_before": start - timedelta(seconds=n % 50)}
        identity = uuid4()
        made[0].append({"id": identity, "state": state, "reason": reason, "finished_at": end, **one, **fixed, **times})
        outcome = "succeeded" if state == "succeeded" else "rejected"
        used = {"prompt_tokens": 900, "cached_tokens": 500, "output_tokens": 70, "compute_seconds": 0.01}
        tried = {"worker": "w", "engine_session_id": box, "started_at": start, "finished_at": end, "outcome": outcome}
        made[1].append({"job_id": identity, "attempt": 1, "reason": reason, **one, **tried, **used})
        output = {"locale": "en", "verdict": verdict, "body": {"text": "x"}, "text": "x", "created_at": end}
        made[2].append({"job_id": identity, "attempt": 1, "reason": reason, **one, **output})
    return made


def write(run: Run, page: Path, since: str) -> str:
    """Let the command write the page, and return it."""
    done = run("report", "--since", since, "--html", page)
    assert done.stderr == f"Report written to {page}.\n"
    assert done.stdout
    return page.read_text(encoding="utf-8")


def rows_of(page: str, caption: str) -> dict[str, list[str]]:
    """A table's cells by the first cell of their row."""
    table = page[page.index(f"<caption>{caption}</caption>") :]
    found = re.findall(r"<tr><th scope=row>(.*?)</th>(.*?)</tr>", table[: table.index("</table>")])
    return {
        unescape(head): [unescape(cell) for cell in re.findall(r"<td[^>]*>(.*?)</td>", rest)] for head, rest in found
    }


def test_the_numbers_are_those_of_the_report(run: Run, engine: Engine, tmp_path: Path) -> None:
    fill(engine, ["hook", "translation"], 1000, timedelta(minutes=50))
    until = (datetime.now(UTC) + timedelta(seconds=1)).isoformat()
    done = run("report", "--since", "1h", "--until", until, "--html", tmp_path / "r.html", "--json")
    report, page = json.loads(done.stdout), (tmp_path / "r.html").read_text(encoding="utf-8")
    assert (report["total"]["jobs"]["succeeded"], report["total"]["jobs"]["dead"]) == (800, 100)
    for kind, figures in {**report["kinds"], "all": report["total"]}.items():
        jobs, rate = figures["jobs"], figures["failure_rate"]
        expected = [str(jobs["succeeded"]), str(figures["jobs_to_edit"])]
        expected += [str(jobs[state]) for state in ("dead", "expired", "cancelled")]
        assert rows_of(page, "Jobs by kind")[kind][:7] == [*expected, "0", f"{rate:.1%}"]
        output, artifact = figures["jobs_with_output"], figures["jobs_with_artifact"]
        shown = [f"{output:,}", f"{artifact:,}", f"{figures['form_yield']:.1%}"]
        shown += [f"{figures['jobs_clean']:,}", f"{figures['clean_yield']:.1%}", "-"]
        assert rows_of(page, "Yield by kind")[kind] == shown
        assert rows_of(page, "Wait, percentiles")[kind][0] == f"{output:,}"
    tokens = rows_of(page, "Tokens of all attempts")
    assert (tokens["prompt, computed"], tokens["prompt, cached"]) == (["400,000"], ["500,000"])
    assert tokens["output"] == [f"{report['total']['output_tokens']:,}"]
    device = rows_of(page, "The device&#x27;s time")
    assert (device["accepted output"][0], device["rejected output"][0]) == ("8.0", "2.0")
    assert device["all"][0] == f"{report['total']['resident_seconds']:,.1f}"
    over_time = rows_of(page, "Jobs finished, by final state").values()
    assert sum(int(cells[0].replace(",", "")) for cells in over_time) == 800


def test_texts_are_escaped_and_nothing_is_loaded(run: Run, engine: Engine, tmp_path: Path) -> None:
    fill(engine, [NASTY], 20, timedelta(minutes=5))
    page = write(run, tmp_path / "r.html", "10m")
    assert "<script" not in page
    assert NASTY in rows_of(page, "Jobs by kind")
    assert NASTY in rows_of(page, "Resident engines")
    assert rows_of(page, "Attempts without an artifact")[NASTY] == ["rejected", NASTY, "4", "0.0"]
    assert not re.search(r"https?:|url\((?!#)|src=|@import", page)
    assert "default-src &#x27;none&#x27;" in page or "default-src 'none'" in page


def test_an_empty_window(run: Run, tmp_path: Path) -> None:
    page = write(run, tmp_path / "r.html", "1h")
    assert EMPTY in page
    assert "<svg" not in page


def test_a_file_that_cannot_be_written(run: Run, tmp_path: Path) -> None:
    missing = tmp_path / "missing" / "r.html"
    assert (
        one_line(run("report", "--html", missing, exit_code=1)) == f"cannot write {missing}: No such file or directory"
    )
    assert one_line(run("report", "--html", tmp_path, exit_code=1)) == f"cannot write {tmp_path}: Is a directory"


def test_without_matplotlib(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("thothy_ai.cli.commands.report.find_spec", lambda name: None)
    said = one_line(run("report", "--html", tmp_path / "r.html", exit_code=1))
    assert said == "--html needs matplotlib: pip install 'thothy-ai[report]'"
    assert not (tmp_path / "r.html").exists()


CASES = {
    "one kind, two minutes": (["hook"], 40, timedelta(seconds=110), "2m"),
    "three kinds, a day": (["hook", "translation", "faq"], 3000, timedelta(hours=20), "24h"),
    "twenty long kinds, a month": (
        [f"{n}_{NASTY}_{'long' * 12}_{n}" for n in range(20)],
        4000,
        timedelta(days=29),
        "30d",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_in_a_browser(run: Run, engine: Engine, tmp_path: Path, chromium: Browser, case: str) -> None:
    kinds, jobs, span, since = CASES[case]
    fill(engine, kinds, jobs, span)
    page = tmp_path / "r.html"
    write(run, page, since)
    for width in WIDTHS:
        chromium.load(page, width)
        _check(chromium, width)
        assert list(chromium.requests.values()) == [page.as_uri()]


def _check(chromium: Browser, width: int) -> None:
    """No horizontal scrolling, and of each plot exactly the drawing that fits, inside the page, with all its labels."""
    assert chromium.evaluate("document.documentElement.scrollWidth") <= width == chromium.evaluate("innerWidth")
    boxes = chromium.evaluate(BOXES)
    assert len(boxes) == PLOTS
    for drawings in boxes:
        [(left, right, height)] = drawings
        assert 0 <= left < right <= width
        assert right - left > width / 2
        assert height > 50
    assert chromium.evaluate(TOO_WIDE) == []
    assert chromium.evaluate("document.querySelectorAll('[role=img]:not([aria-label])').length") == 0
    assert chromium.evaluate("document.scripts.length") == 0


def test_the_page_s_policy_refuses_whatever_it_would_load(run: Run, tmp_path: Path, chromium: Browser) -> None:
    page = tmp_path / "r.html"
    text = write(run, page, "1h")
    page.write_text(text.replace("</main>", '<img src="other.png"><script src="other.js"></script></main>'))
    chromium.load(page, WIDTHS[0])
    assert chromium.evaluate("document.images[0].naturalWidth") == 0
    assert sorted(Path(url).name for url in chromium.refused) == ["other.js", "other.png"]
