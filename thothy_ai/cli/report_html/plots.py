"""The plots of the HTML report, drawn by matplotlib as SVG: text stays text, and each is drawn for two widths.

Type does not shrink on a narrow screen that way: the page shows the drawing that fits. Legends are the page's.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from io import StringIO
from typing import TYPE_CHECKING, Any, Final

from thothy_ai.admin.timeline import ACCEPTED, IDLE, REJECTED, UNSUCCESSFUL, WASTED, Bin, Percentiles
from thothy_ai.db.states import JobState

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DPI: Final = 72  # one SVG unit is one CSS pixel
WIDE, NARROW = 920, 356  # pixels
LABEL_CHARACTERS: Final = {WIDE: 28, NARROW: 14}  # of a kind's name
CHARACTER_PIXELS: Final = 7.8  # of a wide typeface
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
USES: Final = {ACCEPTED: BLUE, REJECTED: ORANGE, UNSUCCESSFUL: VERMILION, WASTED: PURPLE, IDLE: PALE}
DURATIONS: Final = {
    0.001: "1 ms", 0.01: "10 ms", 0.1: "0.1 s", 1: "1 s", 10: "10 s", 60: "1 min", 600: "10 min", 3600: "1 h",
    36000: "10 h", 86400 * 4: "4 d", 86400 * 40: "40 d",
}  # fmt: skip
TICK_STEPS: Final = (
    1, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200,
    86400, 2 * 86400, 5 * 86400, 7 * 86400, 14 * 86400, 30 * 86400, 90 * 86400, 365 * 86400,
)  # fmt: skip
STYLE: Final = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 12,
    "axes.edgecolor": "#9a9a9a",
    "axes.labelcolor": "#555555",
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "axes.axisbelow": True,
    "axes.formatter.use_mathtext": False,
    "axes.unicode_minus": False,
    "grid.color": "#e6e6e6",
    "grid.linewidth": 0.8,
    "text.parse_math": False,
    "xtick.color": "#555555",
    "ytick.color": "#555555",
    "ytick.major.size": 0,
    "xtick.major.size": 3,
}
Draw = Callable[["Axes", int], None]


@dataclass(frozen=True, slots=True)
class Plot:
    """A drawing for each width, and what it shows in words."""

    label: str
    legend: Mapping[str, str]  # colours by name; empty where there is only one
    wide: str
    narrow: str


def finished(bins: Sequence[Bin]) -> Plot:
    """Jobs that finished in each bin, stacked by final state."""
    shown = [state for state in STATES if any(of.jobs.get(state) for of in bins)]
    series = {state.value: [of.jobs.get(state, 0) for of in bins] for state in shown}
    colours = {state.value: STATES[state] for state in shown}
    return _plot("Jobs finished over time, stacked by final state", colours, 220, _bars(bins, series, colours))


def rate(bins: Sequence[Bin], unit: str) -> Plot:
    """Succeeded jobs per hour of residency in each bin."""
    series = {"": [of.jobs_per_compute_hour or 0.0 for of in bins]}
    return _plot(f"Jobs per {unit} over time", {}, 180, _bars(bins, series, {"": BLUE}))


def tokens(bins: Sequence[Bin]) -> Plot:
    """Tokens of the attempts that ended in each bin."""
    values = zip(*((of.computed_tokens, of.cached_tokens, of.output_tokens) for of in bins), strict=True)
    series = dict(zip(TOKENS, map(list, values), strict=True))
    return _plot("Tokens over time: prompt computed, prompt cached, output", TOKENS, 220, _bars(bins, series, TOKENS))


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
        _duration_axis(axes, [max(of.p50, least) for of in kinds.values()], [of.p99 for of in kinds.values()], width)
        _rows(axes, list(kinds), width)

    return _plot(label, {name: colour for name, (colour, _) in MARKS.items()}, 46 + 26 * len(kinds), draw)


MARKS: Final = {"p50": (BLUE, "o"), "p90": (ORANGE, "D"), "p99": (VERMILION, "s")}


def yields(kinds: Mapping[str, float]) -> Plot:
    """The artifact yield of each kind."""

    def draw(axes: Axes, width: int) -> None:
        rows = range(len(kinds))
        axes.barh(rows, [1.0] * len(kinds), color=PALE, height=0.5)
        axes.barh(rows, list(kinds.values()), color=BLUE, height=0.5)
        axes.set_xlim(0, 1)
        axes.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0%", "25%", "50%", "75%", "100%"])
        _rows(axes, list(kinds), width)

    return _plot("Artifact yield per kind", {}, 46 + 26 * len(kinds), draw)


def device(seconds: Mapping[str, float]) -> Plot:
    """The devices' time by what they did with it, as one bar."""
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

    return _plot("The device's time by what it did", colours, 76, draw)


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
        _count_axis(axes, whole=all(isinstance(value, int) for values in series.values() for value in values))
        _time_axis(axes, bins[0].start, bins[-1].end, width)

    return draw


def _count_axis(axes: Axes, *, whole: bool) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axes.yaxis.set_major_locator(MaxNLocator(4, integer=whole))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: short_number(value)))
    axes.grid(axis="y")


def short_number(value: float) -> str:
    """At most four characters or so: 950, 1.5k, 20k, 3M."""
    for size, suffix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{suffix}"
    return f"{value:.3g}"


def _time_axis(axes: Axes, since: datetime, until: datetime, width: int) -> None:
    ticks = time_ticks(since, until, 8 if width == WIDE else 4)
    axes.set_xticks([moment.timestamp() for moment, _ in ticks], [text for _, text in ticks])


def time_ticks(since: datetime, until: datetime, most: int) -> list[tuple[datetime, str]]:
    """At most `most` even local times in the window, and their labels: a clock's below 36 hours, otherwise days."""
    span = (until - since).total_seconds()
    step = next((step for step in TICK_STEPS if span / step <= most), -(-int(span) // most))
    if span > 36 * 3600:
        step = max(step, 86400)
    start = since.astimezone().replace(tzinfo=None)  # as the wall clock counts, which may be changed meanwhile
    tick = start.replace(hour=0, minute=0, second=0, microsecond=0)
    pattern = "%d %b" if step >= 86400 else "%H:%M" if step >= 60 else "%H:%M:%S"
    tick += max(-(-(start - tick) // timedelta(seconds=step)), 0) * timedelta(seconds=step)
    ticks = []
    while (moment := tick.astimezone()) < until:
        ticks.append((moment, f"{tick:{pattern}}".lstrip("0") if step >= 86400 else f"{tick:{pattern}}"))
        tick += timedelta(seconds=step)
    return ticks


def _duration_axis(axes: Axes, low: Iterable[float], high: Iterable[float], width: int) -> None:
    axes.set_xscale("log")
    marks = list(DURATIONS)
    first = max([mark for mark in marks if mark <= min(low)], default=marks[0])
    last = min([mark for mark in marks if mark >= max(high)], default=marks[-1])
    if first == last:
        last = marks[min(marks.index(first) + 1, len(marks) - 1)]
    shown = marks[marks.index(first) : marks.index(last) + 1]
    axes.set_xlim(first * 0.8, last * 1.25)
    every = 2 if width == NARROW and len(shown) > 4 else 1
    axes.set_xticks(shown[::every], [DURATIONS[mark] for mark in shown[::every]])
    axes.set_xticks([], minor=True)
    axes.grid(axis="x")


def _rows(axes: Axes, names: Sequence[str], width: int) -> None:
    axes.set_yticks(range(len(names)), [shortened(name, LABEL_CHARACTERS[width]) for name in names])
    axes.set_ylim(len(names) - 0.5, -0.5)


def shortened(name: str, most: int) -> str:
    """The name in at most `most` characters. Its middle goes: names often begin or end alike, rarely both."""
    half = most // 2
    return name if len(name) <= most else f"{name[: most - half]}…{name[len(name) - half + 1 :]}"


def _plot(label: str, legend: Mapping[str, str], height: int, draw: Draw) -> Plot:
    return Plot(label, legend, _svg(label, WIDE, height, draw), _svg(label, NARROW, height, draw))


def _svg(label: str, width: int, height: int, draw: Draw) -> str:
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # a font that is not there is no news: the browser has it
    salt: dict[str, Any] = {"svg.hashsalt": f"{label} {width}"}  # ids must differ between the drawings of a page
    with rc_context({**STYLE, **salt}):
        figure = Figure((width / DPI, height / DPI), dpi=DPI)
        axes = figure.add_subplot()
        draw(axes, width)
        longest = max((len(text.get_text()) for text in axes.get_yticklabels()), default=0)
        left = max(longest * CHARACTER_PIXELS + 8, 14)
        figure.subplots_adjust(left / width, 30 / height, 1 - 18 / width, 1 - 8 / height)
        out = StringIO()
        figure.savefig(out, format="svg", transparent=True, metadata={"Date": None})
    return inline(out.getvalue())


def inline(svg: str) -> str:
    """The drawing as HTML embeds it: no prologue, metadata, namespaces or styles that would reach the whole page."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>|<style[^>]*>.*?</style>|<!--.*?-->", "", svg, flags=re.DOTALL)
    svg = re.sub(r' xmlns(:\w+)?="[^"]*"| version="1.1"', "", svg)
    svg = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", svg, count=1)
    return re.sub(r'<g id="[^"]*"', "<g", svg).replace("<svg", '<svg aria-hidden="true"', 1).strip()
