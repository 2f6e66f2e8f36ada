"""Recorded drains as a table."""

from __future__ import annotations

from collections.abc import Sequence

from thothy_ai.admin.durations import spell
from thothy_ai.admin.report.recorded_drains import RecordedDrain
from thothy_ai.cli.views.tables import Column, percent, table
from thothy_ai.cli.views.times import local

HEADS = ("jobs", "failed", "to edit", "form yield", "clean yield", "peak", "wait p50", "p95", "p99",
         "run p50", "p95", "p99", "busy s", "useful s", "drafts s", "resident s", "per hour")  # fmt: skip
DROP = {
    "useful s": 9,
    "resident s": 8,
    "failed": 7,
    "peak": 6,
    "clean yield": 5,
    "p95": 4,
    "p99": 3,
    "busy s": 2,
    "run p50": 1,
}


def print_drains(drains: Sequence[RecordedDrain]) -> None:
    heads = [Column("from"), Column("took"), *(Column(head, number=True, drop=DROP.get(head, 0)) for head in HEADS)]
    table("", heads, [[local(of.started_at), took(of), *cells(of)] for of in drains])


def took(of: RecordedDrain) -> str:
    """How long a drain took; an ellipsis marks a drain that was cut after a day."""
    return spell(of.seconds) if of.emptied else f"{spell(of.seconds)} …"


def cells(of: RecordedDrain) -> list[str]:
    """A drain's figures, in the order of `HEADS`."""
    percentiles = (of.wait_p50, of.wait_p95, of.wait_p99, of.run_p50, of.run_p95, of.run_p99)
    seconds = (of.busy_seconds, of.useful_seconds, of.draft_seconds, of.resident_seconds)
    rate = "-" if of.jobs_per_compute_hour is None else f"{of.jobs_per_compute_hour:,.0f}"
    counts = [f"{of.jobs:,}", f"{of.dead + of.expired:,}", f"{of.to_edit:,}"]
    shares = [percent(of.form_yield), percent(of.clean_yield), f"{of.peak_depth:,}"]
    return [*counts, *shares, *map(spell, percentiles), *(f"{each:,.1f}" for each in seconds), rate]
