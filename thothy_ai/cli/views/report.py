"""The drain report as text: kinds side by side if they fit the width, otherwise a row for each kind."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from thothy_ai.admin.durations import spell
from thothy_ai.admin.report.drain_report import DrainReport, Figures
from thothy_ai.cli.views.bill import bill_lines
from thothy_ai.cli.views.tables import PIPE_WIDTH, Column, count, folded, layout, percent
from thothy_ai.cli.views.times import local

PAIR = ("attempts", "wasted s")
OPEN_STATES = ("queued", "dispatched", "running")


class ReportRow(NamedTuple):
    """A figure: its name, a shorter name for the head of a column, and its format."""

    name: str
    head: str
    show: Callable[[Figures], str]


@dataclass(frozen=True, slots=True)
class ReportText:
    """A report that Rich prints as wide as the console: its headline, the figures per kind and in total, the attempts
    without an artifact by reason, the bill. No line ends in spaces.

    `drained` replaces "drained in" and the drain time in the headline.
    """

    report: DrainReport
    drained: str | None = None

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for number, line in enumerate(report_lines(self.report, options.max_width, self.drained)):
            yield Text(line, style="" if number else "bold", overflow="fold")


def report_lines(report: DrainReport, width: int, drained: str | None = None) -> list[str]:
    """The report's lines. A window in which nothing happened is one sentence."""
    total = report.total
    if not total.finished and not total.attempts:
        sentence = f"No job ended from {local(report.since)} to {local(report.until)}"
        if not total.open:
            return textwrap.wrap(f"{sentence}, and none is open.", width)
        states = ", ".join(f"{total.jobs[state]:,} {state}" for state in OPEN_STATES if total.jobs[state])
        be = "is" if total.open == 1 else "are"
        return textwrap.wrap(f"{sentence}; {count(total.open, 'job')} {be} open ({states}).", width)
    if drained is None:
        due = total.still_due
        ended = f"{report.drains:,} drains" if report.drains > 1 else f"drained in {spell(total.drain_seconds)}"
        drained = f"{count(due, 'job')} still open" if due else ended
    headline = (
        f"{rate(total.jobs_per_compute_hour)} jobs per {report.unit}",
        drained,
        f"form yield {percent(total.form_yield)}",
        f"clean yield {percent(total.clean_yield)}",
        approved(report),
        f"failure rate {percent(total.failure_rate)}",
    )
    engines = sorted({f"{session.model} on {session.device}" for session in report.sessions}) or ["no resident engine"]
    return [
        *_joined(headline, width),
        *_joined((f"{local(report.since)} to {local(report.until)}", *engines), width),
        *_figures({**report.kinds, "all": total}, _topics(report), width),
        *(_reasons(report, width) if total.unsuccessful else ()),
        *bill_lines(report.bill, report.unit, width),
        *_beside_jobs(report),
    ]


def _beside_jobs(report: DrainReport) -> Iterator[str]:
    """The engines' seconds for which no attempt is billed."""
    seconds = report.unit.replace("-hour", "-seconds")
    spent = {
        "Requests past the queue": report.direct_seconds,
        "Of those, over HTTP, on the bill": report.interactive_seconds,
        "Unattributed": report.unattributed_seconds,
    }
    if lines := [
        f"{name}: {each:,.1f} {seconds} since the engines' start" for name, each in spent.items() if each >= 0.05
    ]:
        yield from ("", *lines)


def approved(report: DrainReport) -> str:
    """The artifacts that people approved per hour, or a note that no one has decided yet."""
    per_hour = report.total.approved_per_compute_hour
    return "nobody has decided yet" if per_hour is None else f"{rate(per_hour)} approved per {report.unit}"


def drain_time(report: DrainReport) -> str:
    """The label of the time from the first enqueueing to the last finish, which can span several drains."""
    return "first to last" if report.drains > 1 else "drain time"


def _joined(parts: Sequence[str], width: int) -> list[str]:
    """The parts with dots between them, on as few lines as possible without breaking a part."""
    lines = [parts[0]]
    for part in parts[1:]:
        longer = f"{lines[-1]} · {part}"
        if cell_len(longer) <= width:
            lines[-1] = longer
        else:
            lines.append(part)
    return lines


def _figures(kinds: Mapping[str, Figures], topics: Sequence[Sequence[ReportRow]], width: int) -> Iterator[str]:
    """A column for each kind if they fit, otherwise a table for each topic with a row for each kind."""
    heads = [Column(""), *(Column(kind, number=True) for kind in kinds)]
    rows = [[row.name, *map(row.show, kinds.values())] for topic in topics for row in topic]
    side_by_side = layout("", heads, rows, width=PIPE_WIDTH, short=False)
    if cell_len(side_by_side[1]) <= width:
        yield from ("", *side_by_side)
        return
    for topic in topics:
        heads = [Column("kind", text=True), *(Column(row.head, number=True) for row in topic)]
        rows = [[kind, *(row.show(figures) for row in topic)] for kind, figures in kinds.items()]
        yield from ("", *folded(heads, rows, width))


def _topics(report: DrainReport) -> list[list[ReportRow]]:
    unit, seconds = report.unit, report.unit.replace("-hour", "-seconds")
    drafts = report.total.draft_seconds
    topics = [
        [
            ReportRow("jobs succeeded", "succeeded", lambda f: f"{f.succeeded:,}"),
            *([ReportRow("of them to edit", "to edit", lambda f: f"{f.to_edit:,}")] if report.total.to_edit else []),
            ReportRow("jobs dead or expired", "failed", lambda f: f"{f.failed:,}"),
            ReportRow("jobs cancelled", "cancelled", lambda f: f"{f.jobs['cancelled']:,}"),
            ReportRow("jobs still open", "open", lambda f: f"{f.open:,}"),
            ReportRow("failure rate", "failure rate", lambda f: percent(f.failure_rate)),
        ],
        [
            ReportRow("form yield", "form yield", lambda f: percent(f.form_yield)),
            ReportRow("clean yield", "clean yield", lambda f: percent(f.clean_yield)),
            *([ReportRow("approved", "approved", lambda f: f"{f.approved:,}")] if report.total.decided else []),
        ],
        [
            ReportRow(f"jobs per {unit}", f"per {unit}", lambda f: rate(f.jobs_per_compute_hour)),
            ReportRow("jobs per busy hour", "per busy hour", lambda f: rate(f.jobs_per_busy_hour)),
            ReportRow(f"busy {seconds}", "busy s", lambda f: f"{f.busy_seconds:,.1f}"),
            ReportRow(f"wasted {seconds}", "wasted s", lambda f: f"{f.wasted_seconds:,.1f}"),
            *([ReportRow("of drafts to edit", "drafts s", lambda f: f"{f.draft_seconds:,.1f}")] if drafts else []),
        ],
        [
            ReportRow(drain_time(report), drain_time(report), lambda f: spell(f.drain_seconds)),
            ReportRow("attempts", "attempts", lambda f: f"{f.attempts.total():,}"),
            ReportRow("prompt tokens", "prompt tokens", lambda f: f"{f.prompt_tokens:,}"),
            ReportRow("prefix-cache hit rate", "cached", lambda f: percent(f.prefix_hit_rate)),
            ReportRow("output tokens", "output tokens", lambda f: f"{f.output_tokens:,}"),
        ],
    ]
    if report.total.verification_seconds or report.total.saved_tokens:
        verifications = ReportRow("verification, of the rest", "verification", lambda f: percent(f.verification_share))
        saved = ReportRow("tokens saved by early stops", "tokens saved", lambda f: f"{f.saved_tokens:,}")
        topics.append([verifications, saved])
    return topics


def _reasons(report: DrainReport, width: int) -> Iterator[str]:
    """The attempts without an artifact and their time, by reason: a column per kind, or a row per kind and reason."""
    failed = {kind: figures for kind, figures in report.kinds.items() if figures.unsuccessful}
    attempts = {kind: Counter({key.label: n for key, n in of.unsuccessful.items()}) for kind, of in failed.items()}
    wasted = {kind: Counter({key.label: spent for key, spent in of.wasted.items()}) for kind, of in failed.items()}
    reasons = sorted(set().union(*attempts.values()))
    seconds = report.unit.replace("-hour", "-seconds")
    heads = [Column("reason"), *(Column(kind, number=True) for kind in failed), Column(seconds, number=True)]
    rows = [
        [
            reason,
            *(f"{of[reason]:,}" if of[reason] else "-" for of in attempts.values()),
            f"{sum(of[reason] for of in wasted.values()):,.1f}",
        ]
        for reason in reasons
    ]
    lines = layout("", heads, rows, width=PIPE_WIDTH, short=False)
    if cell_len(lines[1]) > width:
        heads = [Column("reason", text=True), Column("kind", text=True), *(Column(name, number=True) for name in PAIR)]
        rows = [
            [reason, kind, f"{attempts[kind][reason]:,}", f"{wasted[kind][reason]:,.1f}"]
            for reason in reasons
            for kind in failed
            if attempts[kind][reason]
        ]
        lines = layout("", heads, rows, width=width, short=False)
    yield from ("", f"Attempts without an artifact, and the {seconds} that they wasted", "", *lines)


def rate(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"
