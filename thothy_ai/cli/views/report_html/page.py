"""Lays the HTML report out: the headline, then a section for each question, each with a plot and its numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from html import escape
from importlib.resources import files

from thothy_ai.admin.report.drain_report import DrainReport, Figures
from thothy_ai.admin.report.timeline import Bin, Percentiles, Timeline
from thothy_ai.cli.views.report import percent, rate
from thothy_ai.cli.views.report_html import plots
from thothy_ai.cli.views.report_html.bill import bill_section
from thothy_ai.cli.views.report_html.tables import details, figure, note, section, table, tiles
from thothy_ai.cli.views.tables import count
from thothy_ai.cli.views.times import local, spell

EMPTY = "No jobs finished in this window."
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def render(report: DrainReport, timeline: Timeline) -> str:
    """The page, complete. It loads nothing and runs nothing."""
    title = f"Thothy report, {local(report.since)} to {local(report.until)}"
    note_of_times = "Jobs count at their finish; attempts, with all that they used, at their end."
    return document(title, _parts(report, timeline), note_of_times)


def document(title: str, parts: Iterable[str], more: str = "") -> str:
    """A page of these sections, in this report's style; `more` stands below them."""
    style = files("thothy_ai.cli.views.report_html").joinpath("style.css").read_text(encoding="utf-8")
    zone = escape(datetime.now().astimezone().strftime("%Z"))
    body = "\n".join(parts)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<style>
{style}</style>
</head>
<body>
<main>
{body}
</main>
<footer>Times are local ({zone}). {more}</footer>
</body>
</html>
"""


def _parts(report: DrainReport, timeline: Timeline) -> Iterator[str]:
    total, unit = report.total, report.unit
    yield _headline(report)
    if total.finished:
        yield section("Jobs finished", figure(plots.finished(timeline.bins)), _jobs_over_time(timeline.bins, unit))
    else:
        yield f"<section><p>{EMPTY}</p></section>"
    if total.succeeded and total.resident_seconds:
        explained = f"Succeeded jobs divided by the {unit}s in which an engine was resident, busy or idle."
        yield section(f"Jobs per {unit}", note(explained), figure(plots.rate(timeline.bins, unit)))
    if report.kinds:
        yield section("Kinds", _kinds(report))
    if timeline.waits:
        explained = "From the enqueueing, or from the time given with --not-before, to the first start."
        yield _percentiles("Wait", explained, "jobs", timeline.waits)
    if timeline.runs:
        yield _percentiles("Run", "From the start of an attempt to its end.", "attempts", timeline.runs)
    if total.with_output or total.attempts:
        yield _yield(report)
    if total.prompt_tokens or total.output_tokens:
        yield section("Tokens", figure(plots.tokens(timeline.bins)), _tokens(total), _tokens_over_time(timeline.bins))
    if sum(timeline.device_seconds.values()):
        yield _device(report, timeline.device_seconds)
    if report.bill.total.usage.resident_seconds or report.bill.total.usage.busy_seconds:
        yield bill_section(report.bill, unit)
    yield _engines(report)


def _headline(report: DrainReport) -> str:
    total = report.total
    figures = {
        f"jobs per {report.unit}": rate(total.jobs_per_compute_hour),
        "artifact yield": percent(total.artifact_yield),
        "drain time": "not drained" if total.still_due else spell(total.drain_seconds),
        "failure rate": percent(total.failure_rate),
        "jobs finished": f"{total.finished:,}",
    }
    length = spell((report.until - report.since).total_seconds())
    window = f"{local(report.since)} to {local(report.until)} ({length})"
    ended = [f"{total.jobs[state]:,} {state.value}" for state in plots.STATES if total.jobs[state]]
    still = f"{count(total.open, 'job')} {'is' if total.open == 1 else 'are'} still open." if total.open else ""
    states = f"{', '.join(ended)}. {still}" if ended else still
    return (
        f"<header><h1>Drain report</h1><p class=sub>{escape(window)}</p>"
        f"{tiles(figures)}<p class=sub>{escape(states)}</p></header>"
    )


def _jobs_over_time(bins: Sequence[Bin], unit: str) -> str:
    heads = ["from", *(state.value for state in plots.STATES), f"jobs per {unit}"]
    rows = [
        [local(of.start), *(f"{of.jobs.get(state, 0):,}" for state in plots.STATES), rate(of.jobs_per_compute_hour)]
        for of in bins
    ]
    return details("Numbers over time", table("Jobs finished, by final state", heads, rows))


def _kinds(report: DrainReport) -> str:
    heads = ["kind", "succeeded", "dead", "expired", "cancelled", "open", "failure rate", "drain time",
             f"jobs per {report.unit}"]  # fmt: skip
    rows = [
        [
            kind,
            *(f"{of.jobs[state]:,}" for state in ("succeeded", "dead", "expired", "cancelled")),
            f"{of.open:,}",
            percent(of.failure_rate),
            spell(of.drain_seconds),
            rate(of.jobs_per_compute_hour),
        ]
        for kind, of in _all_last(report)
    ]
    return table("Jobs by kind", heads, rows, total=True)


def _all_last(report: DrainReport) -> list[tuple[str, Figures]]:
    return [*report.kinds.items(), ("all", report.total)]


def _percentiles(title: str, explained: str, counted: str, by_kind: Mapping[str | None, Percentiles]) -> str:
    shown = {kind: by_kind[kind] for kind in sorted(key for key in by_kind if key is not None)}
    rows = [
        [kind, f"{of.number:,}", *(exact(seconds) for seconds in of[1:])]
        for kind, of in [*shown.items(), ("all", by_kind[None])]
    ]
    label = f"{title} per kind: 50th, 90th and 99th percentile"
    numbers = table(f"{title}, percentiles", ["kind", counted, "p50", "p90", "p99"], rows, total=True)
    return section(title, note(explained), figure(plots.percentiles(label, shown)), numbers)


def exact(seconds: float) -> str:
    """Seconds with the digits that a percentile has."""
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else spell(seconds)


def _yield(report: DrainReport) -> str:
    shown = {kind: of.artifact_yield for kind, of in report.kinds.items() if of.artifact_yield is not None}
    rows = [
        [kind, f"{of.with_output:,}", f"{of.with_artifact:,}", percent(of.artifact_yield)]
        for kind, of in _all_last(report)
    ]
    heads = ["kind", "with output", "with artifact", "yield"]
    return section(
        "Artifact yield",
        note("Jobs with an accepted artifact, of the finished jobs that produced output."),
        figure(plots.yields(shown)) if shown else "",
        table("Artifact yield by kind", heads, rows, total=True),
        _reasons(report.kinds),
    )


def _reasons(kinds: Mapping[str, Figures]) -> str:
    rows = [
        [kind, key.outcome, key.reason or "-", f"{number:,}", f"{of.wasted.get(key, 0.0):,.1f}"]
        for kind, of in kinds.items()
        for key, number in of.unsuccessful.most_common()
    ]
    if not rows:
        return note("Every attempt produced an accepted artifact.")
    return table(
        "Attempts without an artifact", ["kind", "outcome", "reason", "attempts", "wasted seconds"], rows, texts=3
    )


def _tokens(total: Figures) -> str:
    computed = total.prompt_tokens - total.cached_tokens
    rows = [
        [name, f"{number:,}"]
        for name, number in zip(plots.TOKENS, (computed, total.cached_tokens, total.output_tokens), strict=True)
    ]
    return table(
        "Tokens of all attempts", ["", "tokens"], [*rows, ["prefix-cache hit rate", percent(total.prefix_hit_rate)]]
    )


def _tokens_over_time(bins: Sequence[Bin]) -> str:
    rows = [
        [local(of.start), f"{of.computed_tokens:,}", f"{of.cached_tokens:,}", f"{of.output_tokens:,}"] for of in bins
    ]
    heads = ["from", *plots.TOKENS]
    return details("Numbers over time", table("Tokens over time", heads, rows))


def _device(report: DrainReport, seconds: Mapping[str, float]) -> str:
    total = sum(seconds.values())
    name = report.unit.replace("-hour", "-seconds")
    rows = [[use, f"{spent:,.1f}", percent(spent / total)] for use, spent in seconds.items()]
    rows.append(["all", f"{total:,.1f}", "100.0%"])
    explained = f"{name[0].upper()}{name[1:]} by the outcome of the attempts that they were spent on."
    numbers = table("The device's time", ["", name, "share"], rows, total=True)
    return section("Device time", note(explained), figure(plots.device(seconds)), numbers)


def _engines(report: DrainReport) -> str:
    rows = [
        [of.model, of.device, f"{of.gpus}" if of.gpus else "-", spell(of.resident_seconds)] for of in report.sessions
    ]
    if not rows:
        return section("Engines", note("No engine was resident in this window."))
    return section("Engines", table("Resident engines", ["model", "device", "GPUs", "resident"], rows, texts=2))
