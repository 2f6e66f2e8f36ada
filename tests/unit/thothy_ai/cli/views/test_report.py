"""The drain report as text: it fits 80 columns with twenty kinds, is whole in a pipe, and has no trailing spaces."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from io import StringIO

import pytest
from rich.console import Console

from thothy_ai.admin.report.drain_report import AttemptKey, DrainReport, Figures
from thothy_ai.cli.views.report import ReportText, report_lines

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
NAMES = [f"regional_round_up_{number:02}" for number in range(20)]


def figures(jobs: dict[str, int]) -> Figures:
    attempts: Counter[AttemptKey] = Counter({AttemptKey("succeeded", None): jobs.get("succeeded", 0)})
    attempts[AttemptKey("rejected", "number_not_in_source")] = 1_234
    return Figures(
        jobs=Counter(jobs), first_enqueued=NOON, last_finished=NOON + timedelta(hours=1), attempts=attempts,
        with_output=9_999, with_artifact=5_000, prompt_tokens=123_456_789, cached_tokens=100_000_000,
        output_tokens=98_765_432, busy_seconds=12_345.6, resident_seconds=43_200.0,
        wasted={AttemptKey("rejected", "number_not_in_source"): 1_234.5},
    )  # fmt: skip


def report(kinds: dict[str, Figures]) -> DrainReport:
    return DrainReport(NOON, NOON + timedelta(hours=2), (), sum(kinds.values(), Figures()), kinds)


@pytest.fixture
def twenty() -> DrainReport:
    return report({name: figures({"succeeded": 12_345, "dead": 10, "cancelled": 5}) for name in NAMES})


def test_twenty_kinds_fit_80_columns_uncut(twenty: DrainReport) -> None:
    lines = report_lines(twenty, 80)
    assert max(map(len, lines)) <= 80
    assert not any("…" in line for line in lines)
    for name in (*NAMES, "all"):
        rows = [line for line in lines if re.match(rf"{name}\b", line)]
        assert len(rows) == 4, rows  # one per topic
    assert sum("number_not_in_source" in line and "1,234" in line for line in lines) == 20
    assert "246,900" in "\n".join(lines)


def test_what_each_reason_wasted_is_shown(twenty: DrainReport) -> None:
    for width, wasted in ((80, "1,234.5"), (10_000, "24,690.0")):
        (reason, *_) = (line for line in report_lines(twenty, width) if line.startswith("rejected: number_not_in"))
        assert reason.endswith(f" {wasted}")


def test_verifications_and_early_stops_are_shown_where_there_were_any() -> None:
    looked = replace(figures({"succeeded": 5}), verification_seconds=1_234.56, saved_tokens=4_321)
    lines = report_lines(report({"hook": looked}), 120)
    assert any(re.match(r"verification, of the rest +11\.1%", line) for line in lines)
    assert any(re.match(r"tokens saved by early stops +4,321", line) for line in lines)
    assert not any("verification" in line for line in report_lines(report({"hook": figures({"succeeded": 5})}), 120))


def test_in_a_pipe_kinds_stand_side_by_side(twenty: DrainReport) -> None:
    lines = report_lines(twenty, 10_000)
    (heads,) = (line for line in lines if line.split() == [*NAMES, "all"])
    (prompt,) = (line for line in lines if line.startswith("prompt tokens"))
    assert prompt.split().count("123,456,789") == 20
    assert len(prompt) == len(heads)


@pytest.mark.parametrize("width", [80, 160, 10_000])
def test_no_line_ends_in_spaces(twenty: DrainReport, width: int) -> None:
    out = StringIO()
    Console(file=out, width=width).print(ReportText(twenty))
    assert [line for line in out.getvalue().splitlines() if line != line.rstrip()] == []


def test_a_narrow_console_loses_no_figure(twenty: DrainReport) -> None:
    out = StringIO()
    Console(file=out, width=40).print(ReportText(twenty))
    assert "".join(out.getvalue().split()).count("98,765,432") == 20


def test_few_kinds_are_columns_at_80(twenty: DrainReport) -> None:
    lines = report_lines(report({"hook": twenty.kinds[NAMES[0]]}), 80)
    assert any(line.split() == ["hook", "all"] for line in lines)


def test_cancelled_jobs_are_no_failures() -> None:
    cancelled = figures({"succeeded": 590, "dead": 5, "expired": 5, "cancelled": 5_002})
    assert cancelled.failure_rate == pytest.approx(10 / 600)
    assert figures({"cancelled": 5_002}).failure_rate is None
    assert "failure rate 1.7%" in report_lines(report({"hook": cancelled}), 160)[0]


@pytest.mark.parametrize(
    ("jobs", "words"),
    [
        ({}, "and none is open."),
        ({"queued": 1}, "; 1 job is open (1 queued)."),
        ({"queued": 1_200, "running": 3}, "; 1,203 jobs are open (1,200 queued, 3 running)."),
    ],
)
def test_a_window_without_jobs_is_one_sentence(jobs: dict[str, int], words: str) -> None:
    (line,) = report_lines(report({"hook": Figures(jobs=Counter(jobs))} if jobs else {}), 200)
    assert line.startswith("No job ended from ")
    assert line.endswith(words)


def test_a_window_of_several_drains_has_no_drain_time() -> None:
    one = report({"hook": figures({"succeeded": 5})})
    assert " · drained in 1 h 00 m · " in report_lines(one, 120)[0]
    several = report_lines(replace(one, drains=3), 120)
    assert " · 3 drains · " in several[0]
    assert [line.split()[:3] for line in several if "1 h 00 m" in line] == [["first", "to", "last"]]
    assert not any("drain time" in line or "drained" in line for line in several)
    still = replace(one, drains=3, total=replace(one.total, jobs=one.total.jobs + Counter({"queued": 2})))
    assert " · 2 jobs still open · " in report_lines(still, 120)[0]
