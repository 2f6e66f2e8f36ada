"""The axes of the plots: counts, even local times, durations on a logarithmic scale, rows with names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, time, timedelta
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDE, NARROW = 920, 356  # pixels
LABEL_CHARACTERS: Final = {WIDE: 28, NARROW: 14}  # of a kind's name
DURATIONS: Final = {
    0.001: "1 ms", 0.01: "10 ms", 0.1: "0.1 s", 1: "1 s", 10: "10 s", 60: "1 min", 600: "10 min", 3600: "1 h",
    36000: "10 h", 86400 * 4: "4 d", 86400 * 40: "40 d",
}  # fmt: skip
TICK_STEPS: Final = (
    1, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200,
    86400, 2 * 86400, 5 * 86400, 7 * 86400, 14 * 86400, 30 * 86400, 90 * 86400, 365 * 86400,
)  # fmt: skip


def count_axis(axes: Axes, *, whole: bool) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axes.yaxis.set_major_locator(MaxNLocator(4, integer=whole))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: short_number(value)))
    axes.grid(axis="y")


def short_number(value: float) -> str:
    """A number in about four characters: 950, 1.5k, 20k, 3M."""
    for size, suffix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{suffix}"
    return f"{value:.3g}"


def time_axis(axes: Axes, since: datetime, until: datetime, width: int) -> None:
    ticks = time_ticks(since, until, 8 if width == WIDE else 4)
    axes.set_xticks([moment.timestamp() for moment, _ in ticks], [text for _, text in ticks])


def time_ticks(since: datetime, until: datetime, most: int) -> list[tuple[datetime, str]]:
    """At most `most` even local times in the window, and their labels: the day at midnight, otherwise the time."""
    span = (until - since).total_seconds()
    step = next((step for step in TICK_STEPS if span / step <= most), -(-int(span) // (most * 86400)) * 86400)
    if span > 36 * 3600:
        step = max(step, 86400)
    start = since.astimezone().replace(tzinfo=None)  # wall-clock time, since the offset can change within the window
    tick = start.replace(hour=0, minute=0, second=0, microsecond=0)
    day = "%b %Y" if span > 300 * 86400 else "%d %b"
    clock = "%H:%M" if step >= 60 else "%H:%M:%S"
    tick += max(-(-(start - tick) // timedelta(seconds=step)), 0) * timedelta(seconds=step)
    ticks = []
    while (moment := tick.astimezone()) < until:
        midnight = tick.time() == time.min
        ticks.append((moment, f"{tick:{day}}".lstrip("0") if midnight else f"{tick:{clock}}"))
        tick += timedelta(seconds=step)
    return ticks


def duration_axis(axes: Axes, low: Iterable[float], high: Iterable[float], width: int) -> None:
    """Make the axis logarithmic, from below the least duration to above the greatest."""
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


def label_rows(axes: Axes, names: Sequence[str], width: int) -> None:
    axes.set_yticks(range(len(names)), [shortened(name, LABEL_CHARACTERS[width]) for name in names])
    axes.set_ylim(len(names) - 0.5, -0.5)


def shortened(name: str, most: int) -> str:
    """The name in at most `most` characters. The middle is cut: names often begin or end alike, rarely both."""
    half = most // 2
    return name if len(name) <= most else f"{name[: most - half]}…{name[len(name) - half + 1 :]}"
