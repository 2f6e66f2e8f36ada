"""The plots of the HTML report, as SVG. Each is drawn for two widths, so that text does not shrink on a narrow screen.

Legends are part of the page.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from thothy_ai.admin.report.timeline import ACCEPTED, IDLE, INTERACTIVE, LOST, REJECTED, UNSUCCESSFUL, Bin, Percentiles
from thothy_ai.cli.views.report_html.axes import (
    DURATIONS,
    NARROW,
    WIDE,
    count_axis,
    duration_axis,
    label_rows,
    time_axis,
)
from thothy_ai.cli.views.report_html.svg import Draw, drawn
from thothy_ai.db.states import JobState

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Okabe and Ito's colours, which readers with any kind of colour vision tell apart.
BLUE, SKY, ORANGE, VERMILION, PURPLE, GREY, PALE = (
    "#0072b2", "#56b4e9", "#e69f00", "#d55e00", "#cc79a7", "#8a8a8a", "#dedede",
)  # fmt: skip
STATES: Final = {
    JobState.SUCCEEDED: BLUE,
    JobState.DEAD: VERMILION,
    JobState.EXPIRED: ORANGE,
    JobState.CANCELLED: GREY,
}
TOKENS: Final = {"prompt, computed": BLUE, "prompt, cached": SKY, "output": ORANGE}
MARKS: Final = {"p50": (BLUE, "o"), "p90": (ORANGE, "D"), "p99": (VERMILION, "s")}
USES: Final = {ACCEPTED: BLUE, REJECTED: ORANGE, UNSUCCESSFUL: VERMILION, LOST: PURPLE, INTERACTIVE: SKY, IDLE: PALE}


@dataclass(frozen=True, slots=True)
class Plot:
    """A drawing for each width."""

    label: str  # for screen readers
    legend: Mapping[str, str]  # colours by name; empty if there is only one
    wide: str
    narrow: str


def finished(bins: Sequence[Bin]) -> Plot:
    """Jobs that finished in each bin, stacked by final state."""
    shown = [state for state in STATES if any(of.jobs.get(state) for of in bins)]
    series = {state.value: [of.jobs.get(state, 0) for of in bins] for state in shown}
    colours = {state.value: STATES[state] for state in shown}
    return plotted("Jobs finished over time, stacked by final state", colours, 220, _bars(bins, series, colours))


def rate(bins: Sequence[Bin], unit: str) -> Plot:
    """Succeeded jobs per hour of residency in each bin."""
    series = {"": [of.jobs_per_compute_hour or 0.0 for of in bins]}
    return plotted(f"Jobs per {unit} over time", {}, 180, _bars(bins, series, {"": BLUE}))


def tokens(bins: Sequence[Bin]) -> Plot:
    """Tokens of the attempts that ended in each bin."""
    values = zip(*((of.computed_tokens, of.cached_tokens, of.output_tokens) for of in bins), strict=True)
    series = dict(zip(TOKENS, map(list, values), strict=True))
    return plotted("Tokens over time: prompt computed, prompt cached, output", TOKENS, 220, _bars(bins, series, TOKENS))


def percentiles(label: str, kinds: Mapping[str, Percentiles]) -> Plot:
    """The 50th, 90th and 99th percentile of each kind, on a logarithmic axis."""

    def draw(axes: Axes, width: int) -> None:
        least = min(DURATIONS)
        for row, of in enumerate(kinds.values()):
            low, middle, high = (max(seconds, least) for seconds in of[1:])
            axes.plot([low, high], [row, row], color=PALE, linewidth=5, solid_capstyle="round", zorder=2)
            for seconds, (colour, marker) in zip((low, middle, high), MARKS.values(), strict=True):
                axes.plot(
                    [seconds], [row], marker=marker, markersize=7, color=colour, markeredgecolor="white", zorder=3
                )
        duration_axis(axes, [max(of.p50, least) for of in kinds.values()], [of.p99 for of in kinds.values()], width)
        label_rows(axes, list(kinds), width)

    return plotted(label, {name: colour for name, (colour, _) in MARKS.items()}, 46 + 26 * len(kinds), draw)


def yields(kinds: Mapping[str, float]) -> Plot:
    """The form yield of each kind."""

    def draw(axes: Axes, width: int) -> None:
        rows = range(len(kinds))
        axes.barh(rows, [1.0] * len(kinds), color=PALE, height=0.5)
        axes.barh(rows, list(kinds.values()), color=BLUE, height=0.5)
        axes.set_xlim(0, 1)
        axes.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0%", "25%", "50%", "75%", "100%"])
        label_rows(axes, list(kinds), width)

    return plotted("Form yield per kind", {}, 46 + 26 * len(kinds), draw)


def device(seconds: Mapping[str, float]) -> Plot:
    """The devices' time by use, as one bar."""
    total = sum(seconds.values())
    colours = {use: USES[use] for use in seconds if seconds[use]}

    def draw(axes: Axes, _width: int) -> None:
        left = 0.0
        for use, colour in colours.items():
            axes.barh([0], [seconds[use] / total], left=left, color=colour, height=0.8, edgecolor="white", linewidth=1)
            left += seconds[use] / total
        axes.set_xlim(0, 1)
        axes.set_ylim(-0.5, 0.5)
        axes.set_yticks([])
        axes.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0%", "25%", "50%", "75%", "100%"])

    return plotted("The device's time by what it did", colours, 76, draw)


def _bars(bins: Sequence[Bin], series: Mapping[str, Sequence[float]], colours: Mapping[str, str]) -> Draw:
    starts = [of.start.timestamp() for of in bins]
    widths = [(of.end - of.start).total_seconds() for of in bins]

    def draw(axes: Axes, width: int) -> None:
        below = [0.0] * len(bins)
        for name, values in series.items():
            axes.bar(starts, values, widths, below, align="edge", color=colours[name], edgecolor="white", linewidth=0.5)
            below = [low + value for low, value in zip(below, values, strict=True)]
        axes.set_xlim(starts[0], bins[-1].end.timestamp())
        axes.set_ylim(0, max([*below, 1e-9]) * 1.06)
        count_axis(axes, whole=all(isinstance(value, int) for values in series.values() for value in values))
        time_axis(axes, bins[0].start, bins[-1].end, width)

    return draw


def plotted(label: str, legend: Mapping[str, str], height: int, draw: Draw) -> Plot:
    return Plot(label, legend, drawn(label, WIDE, height, draw), drawn(label, NARROW, height, draw))
