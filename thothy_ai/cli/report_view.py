"""Renders a drain report as terminal tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from thothy_ai.admin.report import DrainReport, Figures
from thothy_ai.cli.times import local, spell

Line = tuple[str, Callable[[Figures], str]]


def render(report: DrainReport) -> RenderableType:
    """The headline, the figures per kind and in total, and the attempts without an artifact by reason."""
    parts: list[RenderableType] = [_headline(report), _figures(report)]
    reasons = {kind: _unsuccessful(figures) for kind, figures in report.kinds.items()}
    if any(reasons.values()):
        parts.append(_counts("Attempts without an artifact", reasons))
    return Group(*parts)


def _headline(report: DrainReport) -> Text:
    total = report.total
    engines = ", ".join(sorted({f"{session.model} on {session.device}" for session in report.sessions}))
    return Text.assemble(
        (f"{_rate(total.jobs_per_compute_hour)} jobs per {report.unit}", "bold"),
        f" · drained in {spell(total.drain_seconds)}",
        f" · artifact yield {_percent(total.artifact_yield)}",
        f" · failure rate {_percent(total.failure_rate)}\n",
        (f"{local(report.since)} to {local(report.until)} · {engines or 'no resident engine'}\n", "dim"),
    )


def _figures(report: DrainReport) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("")
    for name in [*report.kinds, "all"]:
        table.add_column(Text(name), justify="right", overflow="fold")
    columns = [*report.kinds.values(), report.total]
    for label, show in _lines(report.unit):
        table.add_row(label, *(show(figures) for figures in columns))
    return table


def _lines(unit: str) -> list[Line]:
    seconds = unit.replace("-hour", "-seconds")
    return [
        ("jobs succeeded", lambda f: f"{f.succeeded:,}"),
        ("jobs dead or expired", lambda f: f"{f.failed:,}"),
        ("jobs cancelled", lambda f: f"{f.jobs['cancelled']:,}"),
        ("jobs still open", lambda f: f"{f.open:,}"),
        (f"jobs per {unit}", lambda f: _rate(f.jobs_per_compute_hour)),
        ("jobs per busy hour", lambda f: _rate(f.jobs_per_busy_hour)),
        ("drain time", lambda f: spell(f.drain_seconds)),
        ("failure rate", lambda f: _percent(f.failure_rate)),
        ("artifact yield", lambda f: _percent(f.artifact_yield)),
        ("attempts", lambda f: f"{f.attempts.total():,}"),
        ("prompt tokens", lambda f: f"{f.prompt_tokens:,}"),
        ("prefix-cache hit rate", lambda f: _percent(f.prefix_hit_rate)),
        ("output tokens", lambda f: f"{f.output_tokens:,}"),
        (f"busy {seconds}", lambda f: f"{f.busy_seconds:,.1f}"),
        (f"wasted {seconds}", lambda f: f"{f.wasted_seconds:,.1f}"),
    ]


def _unsuccessful(figures: Figures) -> Counter[str]:
    counts: Counter[str] = Counter()
    for key, count in figures.attempts.items():
        if key.outcome != "succeeded":
            counts[f"{key.outcome}: {key.reason}" if key.reason else key.outcome] += count
    return counts


def _counts(title: str, by_kind: dict[str, Counter[str]]) -> Table:
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("reason", overflow="fold")
    shown = [kind for kind, counts in by_kind.items() if counts]
    for kind in shown:
        table.add_column(Text(kind), justify="right", overflow="fold")
    for reason in sorted(set().union(*by_kind.values())):
        table.add_row(Text(reason), *(str(by_kind[kind][reason] or "-") for kind in shown))
    return table


def _rate(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"
