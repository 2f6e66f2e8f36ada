"""The sections of the HTML report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from thothy_ai.admin.durations import spell
from thothy_ai.admin.report.bill import DIMENSIONS, Bill
from thothy_ai.admin.report.drain_report import DrainReport, Figures
from thothy_ai.admin.report.timeline import Bin, Percentiles
from thothy_ai.cli.views.bill import columns, dimension_rows, heading, restatement
from thothy_ai.cli.views.report import drain_time, rate
from thothy_ai.cli.views.report_html import plots
from thothy_ai.cli.views.report_html.tables import details, figure, note, section, table, tiles
from thothy_ai.cli.views.tables import count, percent
from thothy_ai.cli.views.times import local

BILL_NOTE = (
    "Useful seconds led to an accepted artifact, those of drafts to one that is kept for a person to edit or was"
    " approved; all other busy seconds are wasted. Idle time belongs to no kind"
    " or tenant: only the total includes it."
)


def headline(report: DrainReport) -> str:
    total = report.total
    figures = {
        f"jobs per {report.unit}": rate(total.jobs_per_compute_hour),
        "form yield": percent(total.form_yield),
        "clean yield": percent(total.clean_yield),
        f"approved per {report.unit}": rate(total.approved_per_compute_hour) if total.decided else "nobody decided",
        drain_time(report): "not drained" if total.still_due else spell(total.drain_seconds),
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


def jobs_over_time(bins: Sequence[Bin], unit: str) -> str:
    heads = ["from", *(state.value for state in plots.STATES), f"jobs per {unit}"]
    rows = [
        [local(of.start), *(f"{of.jobs.get(state, 0):,}" for state in plots.STATES), rate(of.jobs_per_compute_hour)]
        for of in bins
    ]
    return details("Numbers over time", table("Jobs finished, by final state", heads, rows))


def kinds(report: DrainReport) -> str:
    heads = ["kind", "succeeded", "to edit", "dead", "expired", "cancelled", "open", "failure rate", drain_time(report),
             f"jobs per {report.unit}"]  # fmt: skip
    rows = [
        [
            kind,
            f"{of.succeeded:,}",
            f"{of.to_edit:,}",
            *(f"{of.jobs[state]:,}" for state in ("dead", "expired", "cancelled")),
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


def percentiles(title: str, explained: str, counted: str, by_kind: Mapping[str | None, Percentiles]) -> str:
    shown = {kind: by_kind[kind] for kind in sorted(key for key in by_kind if key is not None)}
    rows = [
        [kind, f"{of.number:,}", *(f"{1000 * each:.0f} ms" if each < 1 else spell(each) for each in of[1:])]
        for kind, of in [*shown.items(), ("all", by_kind[None])]
    ]
    label = f"{title} per kind: 50th, 90th and 99th percentile"
    numbers = table(f"{title}, percentiles", ["kind", counted, "p50", "p90", "p99"], rows, total=True)
    return section(title, note(explained), figure(plots.percentiles(label, shown)), numbers)


def artifact_yield(report: DrainReport) -> str:
    shown = {kind: of.form_yield for kind, of in report.kinds.items() if of.form_yield is not None}
    rows = [
        [
            kind,
            f"{of.with_output:,}",
            f"{of.with_artifact:,}",
            percent(of.form_yield),
            f"{of.clean:,}",
            percent(of.clean_yield),
            f"{of.approved:,} of {of.decided:,}" if of.decided else "-",
        ]
        for kind, of in _all_last(report)
    ]
    heads = ["kind", "with output", "with artifact", "form yield", "clean", "clean yield", "approved, of decided"]
    attempts = [
        [kind, key.outcome, key.reason or "-", f"{number:,}", f"{of.wasted.get(key, 0.0):,.1f}"]
        for kind, of in report.kinds.items()
        for key, number in of.unsuccessful.most_common()
    ]
    failed = note("Every attempt produced an accepted artifact.")
    if attempts:
        attempt_heads = ["kind", "outcome", "reason", "attempts", "wasted seconds"]
        failed = table("Attempts without an artifact", attempt_heads, attempts, texts=3)
    return section(
        "Yield",
        note(
            "Form yield: jobs with an artifact that no gate is against, of the finished jobs that produced output."
            " Clean yield: those in which nothing was found at all. Approved: by a person."
        ),
        figure(plots.yields(shown)) if shown else "",
        table("Yield by kind", heads, rows, total=True),
        failed,
    )


def tokens(total: Figures, bins: Sequence[Bin]) -> tuple[str, str]:
    """The tokens of all attempts, and their numbers over time."""
    computed = total.prompt_tokens - total.cached_tokens
    numbers = (computed, total.cached_tokens, total.output_tokens)
    rows = [[name, f"{number:,}"] for name, number in zip(plots.TOKENS, numbers, strict=True)]
    rows.append(["prefix-cache hit rate", percent(total.prefix_hit_rate)])
    over_time = [
        [local(of.start), f"{of.computed_tokens:,}", f"{of.cached_tokens:,}", f"{of.output_tokens:,}"] for of in bins
    ]
    return (
        table("Tokens of all attempts", ["", "tokens"], rows),
        details("Numbers over time", table("Tokens over time", ["from", *plots.TOKENS], over_time)),
    )


def device_time(report: DrainReport, seconds: Mapping[str, float]) -> str:
    total = sum(seconds.values())
    name = report.unit.replace("-hour", "-seconds")
    rows = [[use, f"{spent:,.1f}", percent(spent / total)] for use, spent in seconds.items()]
    rows.append(["all", f"{total:,.1f}", "100.0%"])
    explained = f"{name[0].upper()}{name[1:]} by what they were spent on: attempts by their outcome, and requests."
    numbers = table("The device's time", ["", name, "share"], rows, total=True)
    return section("Device time", note(explained), figure(plots.device(seconds)), numbers)


def engines(report: DrainReport) -> str:
    rows = [
        [
            of.model,
            of.device,
            f"{of.gpus}" if of.gpus else "-",
            spell(of.resident_seconds),
            spell(of.direct_seconds),
            spell(of.interactive_seconds),
            spell(of.unattributed_seconds),
        ]
        for of in report.sessions
    ]
    if not rows:
        return section("Engines", note("No engine was resident in this window."))
    heads = ["model", "device", "GPUs", "resident", "past the queue", "over HTTP", "unattributed"]
    explained = (
        "Seconds past the queue are those of requests that are not jobs, since the engine's start; of these, those of"
        " requests over HTTP are billed."
    )
    return section("Engines", note(explained), table("Resident engines", heads, rows, texts=2))


def bill(read: Bill, unit: str) -> str:
    parts = [note(f"{heading(read, unit)}. {BILL_NOTE}")]
    for dimension in DIMENSIONS[: 4 if read.keys else 3]:
        rows = dimension_rows(read, dimension)
        parts.append(table(f"Bill by {dimension}", [dimension, *columns(read)], rows, total=True))
    if read.restated:
        parts.append(note("Restated since their hour was closed: " + "; ".join(map(restatement, read.restated[-20:]))))
    return section("Bill", *parts)
