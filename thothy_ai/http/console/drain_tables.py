"""The tables of the drains page as CSV: a header, and a row per name, reason, kind, drain or period."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from thothy_ai.admin.report.bill import Dimension
from thothy_ai.admin.report.drain_report import DrainReport
from thothy_ai.admin.report.recorded_drains import RecordedDrain
from thothy_ai.admin.report.timeline import Percentiles, Timeline
from thothy_ai.db.states import JobState

ENDS = (JobState.SUCCEEDED, JobState.DEAD, JobState.EXPIRED, JobState.CANCELLED)
Rows = Iterator[Iterable[object]]


def bill_rows(report: DrainReport, by: Dimension) -> Rows:
    yield (
        by, "attempts", "accepted", "rejected", "dead", "to_edit", "form_yield", "clean_yield", "decided", "approved",
        "approved_per_compute_hour", "busy_seconds", "useful_seconds", "draft_seconds", "redeemed_seconds",
        "wasted_seconds", "idle_seconds", "cost", "wasted_cost", "currency",
    )  # fmt: skip
    bill = report.bill
    for name, line in bill.by(by).items():
        used = line.usage
        yield (
            name, used.attempts, used.accepted, used.rejected, used.dead, used.to_edit, used.form_yield,
            used.clean_yield, used.decided, used.approved, line.approved_per_compute_hour, used.busy_seconds,
            used.useful_seconds, used.draft_seconds, used.redeemed_seconds, used.wasted_seconds, line.idle_seconds,
            line.cost, line.wasted_cost, bill.prices.currency,
        )  # fmt: skip


def waste_rows(report: DrainReport) -> Rows:
    yield "outcome", "reason", "attempts", "wasted_seconds"
    for key, seconds in report.total.wasted.items():
        yield key.outcome, key.reason, report.total.attempts[key], seconds


def yield_rows(report: DrainReport) -> Rows:
    counts = ("succeeded", "to_edit", "failed", "with_output", "with_artifact", "clean", "decided", "approved")
    rates = ("form_yield", "clean_yield", "approved_per_compute_hour")
    yield "kind", *counts, *rates
    for kind, of in report.kinds.items():
        yield kind, *(getattr(of, name) for name in (*counts, *rates))


def drain_rows(drains: Sequence[RecordedDrain]) -> Rows:
    for number, drain in enumerate(drains):
        values = drain.to_json()
        if not number:
            yield values
        yield values.values()


def timeline_rows(timeline: Timeline) -> Rows:
    percentiles = [f"{what}_{name}" for what in ("wait", "run") for name in Percentiles._fields[1:]]
    tokens = ("computed_tokens", "cached_tokens", "output_tokens")
    yield "start", "end", *ENDS, *percentiles, *tokens, "resident_seconds"
    for of in timeline.bins:
        times = [None if each is None else each[place] for each in (of.waits, of.runs) for place in (1, 2, 3)]
        used = (getattr(of, name) for name in tokens)
        counts = (of.jobs.get(state, 0) for state in ENDS)
        yield of.start.isoformat(), of.end.isoformat(), *counts, *times, *used, of.resident_seconds
