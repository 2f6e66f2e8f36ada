"""The page of `thothy report drains --html`: when the queue was not empty, and what each drain took.

Each drain has a bar of the same width: drains of minutes would be invisible on the time axis of a week.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from thothy_ai.admin.report.recorded_drains import RecordedDrain
from thothy_ai.cli.views.drains import HEADS, cells, took
from thothy_ai.cli.views.report_html.axes import NARROW, WIDE, count_axis
from thothy_ai.cli.views.report_html.page import document
from thothy_ai.cli.views.report_html.plots import BLUE, GREY, ORANGE, PALE, VERMILION, Plot, plotted
from thothy_ai.cli.views.report_html.tables import figure, note, section, table
from thothy_ai.cli.views.tables import count
from thothy_ai.cli.views.times import local

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MIN_BARS = 12  # bars that the plot has room for, so that a single drain does not fill it
MAX_LABELS = {WIDE: 6, NARROW: 3}
OUTCOMES = {"succeeded": BLUE, "dead": VERMILION, "expired": ORANGE, "cancelled": GREY}
USES = {"useful": BLUE, "drafts to edit": ORANGE, "wasted": VERMILION, "idle": PALE}


def render(drains: Sequence[RecordedDrain], since: datetime, until: datetime) -> str:
    """The complete page. It loads nothing and runs no script."""
    window = f"{local(since)} to {local(until)}"
    head = f"<header><h1>Drains</h1><p class=sub>{window}: {count(len(drains), 'drain')}</p></header>"
    if not drains:
        return document(f"Thothy drains, {window}", [head, "<section><p>No drain ended in this window.</p></section>"])
    jobs = {name: [float(getattr(of, name)) for of in drains] for name in OUTCOMES}
    seconds = {
        "useful": [of.useful_seconds for of in drains],
        "drafts to edit": [of.draft_seconds for of in drains],
        "wasted": [of.wasted_seconds for of in drains],
        "idle": [max(of.resident_seconds - of.busy_seconds, 0.0) for of in drains],
    }
    jobs_plot = _plot("Jobs of each drain, the oldest first, stacked by final state", jobs, OUTCOMES, drains)
    label = "Device-seconds of each drain, the oldest first: useful, drafts, wasted, idle"
    seconds_plot = _plot(label, seconds, USES, drains)
    heads = ["from", "took", *HEADS[:7], "wait p95", "wait p99", "run p50", "run p95", "run p99", *HEADS[12:]]
    rows = [[local(of.started_at), took(of), *cells(of)] for of in drains]
    explained = (
        "A bar for each drain, the oldest first, as high as the jobs that ended in it. Labels say when one began."
    )
    sections = [
        head,
        section("Jobs", note(explained), figure(jobs_plot)),
        section("Device-seconds", figure(seconds_plot)),
        section("Drains", table("Drains, the oldest first", heads, rows, texts=2)),
    ]
    return document(f"Thothy drains, {window}", sections)


def _plot(label: str, series: dict[str, list[float]], colours: dict[str, str], drains: Sequence[RecordedDrain]) -> Plot:
    shown = {name: values for name, values in series.items() if any(values)}
    places = range(len(drains))

    def draw(axes: Axes, width: int) -> None:
        below = [0.0] * len(drains)
        for name, values in shown.items():
            axes.bar(places, values, 0.8, below, color=colours[name], edgecolor="white", linewidth=0.3)
            below = [low + value for low, value in zip(below, values, strict=True)]
        axes.set_xlim(-0.5, max(len(drains), MIN_BARS) - 0.5)
        axes.set_ylim(0, max([*below, 1e-9]) * 1.06)
        count_axis(axes, whole=False)
        labelled = places[:: -(-max(len(drains), MIN_BARS) // MAX_LABELS[width])]
        axes.set_xticks(labelled, [f"{drains[at].started_at.astimezone():%d %b %H:%M}" for at in labelled])

    return plotted(label, {name: colours[name] for name in shown}, 220, draw)
