"""Lays a drain report out as text: kinds side by side where they fit the width, otherwise a row for each kind."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from thothy_ai.admin.report.drain_report import DrainReport, Figures
from thothy_ai.cli.views.bill import bill_lines
from thothy_ai.cli.views.tables import PIPE_WIDTH, Column, count, layout
from thothy_ai.cli.views.times import local, spell

PAIR = ("attempts", "wasted s")
OPEN_STATES = ("queued", "dispatched", "running")


class ReportRow(NamedTuple):
    """A figure: its name, its name as the head of a narrow column, and how it is shown."""

    name: str
    head: str
    show: Callable[[Figures], str]


@dataclass(frozen=True, slots=True)
class ReportText:
    """A report that Rich prints as wide as the console. No line ends in spaces."""

    report: DrainReport
    drained: str | None = None

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for number, line in enumerate(report_lines(self.report, options.max_width, self.drained)):
            yield Text(line, style="" if number else "bold", overflow="fold")


def render(report: DrainReport, drained: str | None = None) -> ReportText:
    """The headline, the figures per kind and in total, and the attempts without an artifact by reason.

    `drained` stands in the headline for "drained in" and the drain time.
    """
    return ReportText(report, drained)


def report_lines(report: DrainReport, width: int, drained: str | None = None) -> list[str]:
    """The report's lines. A window in which nothing happened is one sentence."""
    nothing = _nothing(report)
    if nothing:
        return textwrap.wrap(nothing, width)
    figures = {**report.kinds, "all": report.total}
    return [
        *_headline(report, width, drained or drain_words(report.total)),
        *_figures(figures, [*_topics(report.unit), *_second_looks(report.total)], width),
        *(_reasons(report, width) if report.total.unsuccessful else ()),
        *bill_lines(report.bill, report.unit, width),
    ]


def drain_words(total: Figures) -> str:
    """How long the drain took; while jobs are due, how many."""
    if total.still_due:
        return f"{count(total.still_due, 'job')} still open"
    return f"drained in {spell(total.drain_seconds)}"


def _nothing(report: DrainReport) -> str | None:
    """What to say of a window in which no job ended and none was tried."""
    total = report.total
    if total.finished or total.attempts:
        return None
    window = f"No job ended from {local(report.since)} to {local(report.until)}"
    if not total.open:
        return f"{window}, and none is open."
    states = ", ".join(f"{total.jobs[state]:,} {state}" for state in OPEN_STATES if total.jobs[state])
    return f"{window}; {count(total.open, 'job')} {'is' if total.open == 1 else 'are'} open ({states})."


def _headline(report: DrainReport, width: int, drained: str) -> list[str]:
    total = report.total
    engines = sorted({f"{session.model} on {session.device}" for session in report.sessions})
    figures = (
        f"{rate(total.jobs_per_compute_hour)} jobs per {report.unit}",
        drained,
        f"artifact yield {percent(total.artifact_yield)}",
        f"failure rate {percent(total.failure_rate)}",
    )
    window = f"{local(report.since)} to {local(report.until)}"
    return [*_joined(figures, width), *_joined((window, *(engines or ["no resident engine"])), width)]


def _joined(parts: Sequence[str], width: int) -> list[str]:
    """The parts with dots between them, on as few lines as hold them unbroken."""
    lines = [parts[0]]
    for part in parts[1:]:
        longer = f"{lines[-1]} · {part}"
        if cell_len(longer) <= width:
            lines[-1] = longer
        else:
            lines.append(part)
    return lines


def _figures(kinds: Mapping[str, Figures], topics: Sequence[Sequence[ReportRow]], width: int) -> Iterator[str]:
    """A column for each kind if they fit, otherwise a row for each in a table for each topic."""
    heads = [Column(""), *(Column(kind, number=True) for kind in kinds)]
    rows = [[line.name, *map(line.show, kinds.values())] for topic in topics for line in topic]
    side_by_side = layout("", heads, rows, width=PIPE_WIDTH, short=False)
    if cell_len(side_by_side[1]) <= width:
        yield from ("", *side_by_side)
        return
    for topic in topics:
        heads = [Column("kind", text=True), *(Column(line.head, number=True) for line in topic)]
        rows = [[kind, *(line.show(figures) for line in topic)] for kind, figures in kinds.items()]
        yield from ("", *layout("", heads, rows, width=width, short=False))


def _topics(unit: str) -> list[list[ReportRow]]:
    seconds = unit.replace("-hour", "-seconds")
    return [
        [
            ReportRow("jobs succeeded", "succeeded", lambda f: f"{f.succeeded:,}"),
            ReportRow("jobs dead or expired", "failed", lambda f: f"{f.failed:,}"),
            ReportRow("jobs cancelled", "cancelled", lambda f: f"{f.jobs['cancelled']:,}"),
            ReportRow("jobs still open", "open", lambda f: f"{f.open:,}"),
            ReportRow("failure rate", "failure rate", lambda f: percent(f.failure_rate)),
            ReportRow("artifact yield", "yield", lambda f: percent(f.artifact_yield)),
        ],
        [
            ReportRow(f"jobs per {unit}", f"per {unit}", lambda f: rate(f.jobs_per_compute_hour)),
            ReportRow("jobs per busy hour", "per busy hour", lambda f: rate(f.jobs_per_busy_hour)),
            ReportRow(f"busy {seconds}", "busy s", lambda f: f"{f.busy_seconds:,.1f}"),
            ReportRow(f"wasted {seconds}", "wasted s", lambda f: f"{f.wasted_seconds:,.1f}"),
        ],
        [
            ReportRow("drain time", "drain time", lambda f: spell(f.drain_seconds)),
            ReportRow("attempts", "attempts", lambda f: f"{f.attempts.total():,}"),
            ReportRow("prompt tokens", "prompt tokens", lambda f: f"{f.prompt_tokens:,}"),
            ReportRow("prefix-cache hit rate", "cached", lambda f: percent(f.prefix_hit_rate)),
            ReportRow("output tokens", "output tokens", lambda f: f"{f.output_tokens:,}"),
        ],
    ]


def _second_looks(total: Figures) -> list[list[ReportRow]]:
    """Reviews and early stops, where there were any."""
    if not total.review_seconds and not total.saved_tokens:
        return []
    return [
        [
            ReportRow("reviews, of the rest", "reviews", lambda f: percent(f.review_share)),
            ReportRow("tokens saved by early stops", "tokens saved", lambda f: f"{f.saved_tokens:,}"),
        ]
    ]


def _reasons(report: DrainReport, width: int) -> Iterator[str]:
    """The attempts without an artifact, and what they took: a column for each kind, or a row for each pair."""
    shown = {kind: _by_label(figures) for kind, figures in report.kinds.items() if figures.unsuccessful}
    reasons = sorted(set().union(*shown.values()))
    wasted = {kind: _wasted_by_label(report.kinds[kind]) for kind in shown}
    seconds = report.unit.replace("-hour", "-seconds")
    heads = [Column("reason"), *(Column(kind, number=True) for kind in shown), Column(seconds, number=True)]
    rows: list[list[object]] = [
        [
            reason,
            *(f"{counts[reason]:,}" if counts[reason] else "-" for counts in shown.values()),
            f"{sum(by_label.get(reason, 0.0) for by_label in wasted.values()):,.1f}",
        ]
        for reason in reasons
    ]
    lines = layout("", heads, rows, width=PIPE_WIDTH, short=False)
    if cell_len(lines[1]) > width:
        heads = [Column("reason", text=True), Column("kind", text=True), *(Column(name, number=True) for name in PAIR)]
        rows = [
            [reason, kind, f"{shown[kind][reason]:,}", f"{wasted[kind].get(reason, 0.0):,.1f}"]
            for reason in reasons
            for kind in shown
            if shown[kind][reason]
        ]
        lines = layout("", heads, rows, width=width, short=False)
    yield from ("", f"Attempts without an artifact, and the {seconds} that they wasted", "", *lines)


def _by_label(figures: Figures) -> Counter[str]:
    return Counter({key.label: number for key, number in figures.unsuccessful.items()})


def _wasted_by_label(figures: Figures) -> dict[str, float]:
    return {key.label: seconds for key, seconds in figures.wasted.items()}


def rate(value: float | None) -> str:
    """Format a figure per hour; a dash for None."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def percent(value: float | None) -> str:
    """Format a fraction; a dash for None."""
    return "-" if value is None else f"{value:.1%}"
