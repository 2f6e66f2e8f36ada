"""The page of recorded drains: every drain can be seen, however long the window is."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest

from thothy_ai.admin.report.recorded_drains import RecordedDrain
from thothy_ai.cli.views.report_html.axes import WIDE
from thothy_ai.cli.views.report_html.drains import render

SUNDAY = datetime(2026, 11, 22, tzinfo=UTC)
BAR = re.compile(r"M ([\d.]+) [\d.]+\s+L ([\d.]+) [\d.]+\s+(?:L [\d.]+ [\d.]+\s+)+z")


def drain(at: datetime) -> RecordedDrain:
    return RecordedDrain(
        started_at=at, ended_at=at + timedelta(minutes=1), emptied=True, succeeded=5, dead=1, cancelled=0, expired=0,
        attempts=6, with_output=6, with_artifact=4, clean=3, draft_seconds=5.0, peak_depth=3, wait_p50=1.0,
        wait_p95=2.0, wait_p99=3.0, run_p50=1.0, run_p95=2.0, run_p99=3.0, resident_seconds=60.0,
        busy_seconds=40.0, useful_seconds=30.0,
    )  # fmt: skip


@pytest.mark.parametrize("drains", [1, 2, 40])
def test_a_drain_of_a_minute_is_no_sliver_in_a_week(drains: int) -> None:
    week = [drain(SUNDAY - timedelta(days=7) * (drains - at) / drains) for at in range(drains)]
    page = render(week, SUNDAY - timedelta(days=7), SUNDAY)
    wide = page.partition("<div class=wide>")[2].partition("</svg>")[0]
    widths = [float(right) - float(left) for left, right in BAR.findall(wide)]
    bars = [width for width in widths if width < WIDE / 2]
    assert len(bars) >= 2 * drains, "succeeded and dead jobs"
    assert min(bars) > WIDE / max(drains, 12) / 2
    assert f"{week[0].started_at.astimezone():%d %b %H:%M}" in wide
