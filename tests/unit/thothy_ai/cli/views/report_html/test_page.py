"""Drawings as HTML embeds them, without what reaches the whole page or names a host."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from thothy_ai.admin.report.timeline import STEPS, Percentiles, bin_step, empty_bins
from thothy_ai.cli.views.report_html import plots
from thothy_ai.db.states import JobState

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)


@pytest.mark.parametrize("seconds", [1, 119, 120, 3600, 86400, 30 * 86400, 3000 * 86400])
def test_bins_cover_the_window_and_touch(seconds: int) -> None:
    since = NOON + timedelta(seconds=7.25)
    until = since + timedelta(seconds=seconds)
    _, step, bins = empty_bins(since, until)
    assert step == bin_step(until - since)
    assert step in STEPS or step % 86400 == 0
    assert (bins[0].start, bins[-1].end) == (since, until)
    assert all(one.end == other.start for one, other in pairwise(bins))
    assert len(bins) <= 60


def test_a_plot_is_drawn_for_both_widths_without_references() -> None:
    _, _, bins = empty_bins(NOON, NOON + timedelta(hours=2))
    bins[3].jobs = {JobState.SUCCEEDED: 5, JobState.DEAD: 2}
    plot = plots.finished(bins)
    assert plot.legend == {"succeeded": plots.BLUE, "dead": plots.VERMILION}
    for drawing, width in ((plot.wide, plots.WIDE), (plot.narrow, plots.NARROW)):
        assert drawing.startswith("<svg")
        assert f'viewBox="0 0 {width} 220"' in drawing
        assert not re.search(r"http|xmlns|<style|<metadata|<!--|<\?xml", drawing)
        assert "<text" in drawing
    ids = re.findall(r'id="([^"]*)"', plot.wide + plot.narrow)
    assert len(ids) == len(set(ids))


def test_names_and_extreme_durations_are_drawn() -> None:
    kinds = {"<b>$x_1$": Percentiles(3, 0.0, 0.0, 0.0), "slow": Percentiles(1, 1.0, 90.0, 1e7)}
    drawing = plots.percentiles("Run per kind", kinds).wide
    assert "&lt;b&gt;$x_1$" in drawing
    assert "<b>" not in drawing
