"""`thothy report forecast`: when the queue is empty, which jobs will be late, and how wrong earlier forecasts were."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import typer

from thothy_ai.cli.shell import AsJson, database, load_settings
from thothy_ai.cli.views import times
from thothy_ai.cli.views.tables import Column, count, print_fields, print_json, print_text, table

if TYPE_CHECKING:
    from thothy_ai.queue.forecast.accuracy import Accuracy
    from thothy_ai.queue.forecast.outlook import Forecast

WHY_UNKNOWN = {
    "no_engine": "not known: no engine is ready. `thothy doctor` says what to do.",
    "no_history": "not known: no job has finished yet, and what a job costs is learnt from those that have.",
}
MAX_LATE_ROWS = 10
MIN_ARRIVALS = 0.05 / 60  # per second: fewer are shown as 0.0 jobs/min


def forecast(as_json: AsJson = False) -> None:
    """Forecast when the queue will be empty and which jobs will be late, with the error of earlier forecasts.

    It covers the jobs that are due now, with their retries and follow-up jobs, and assumes that no others arrive.

    Example: thothy report forecast
    """
    from thothy_ai.queue.forecast.store import current, past_accuracy

    with database() as engine:
        made = current(engine, load_settings().publish_by)
        past = past_accuracy(engine)
    if as_json:
        return print_json({**made.to_json(), "past": asdict(past)})
    if made.paused:
        print_text("The queue is paused: the times count from when it is resumed.")
    print_fields([*_times(made), *_risks(made), ("earlier forecasts", _past(past))])
    _kinds(made)
    return _late(made)


def _times(made: Forecast) -> Iterator[tuple[str, object]]:
    if made.basis == "empty":
        yield "queue", "nothing that can run now" if made.delayed or made.unserved else "empty"
    else:
        back = f", {made.returning:,} starting again" if made.returning else ""
        yield "queue", f"{_jobs(made.open_jobs)} due or running, {count(made.engines, 'engine')} ready{back}"
        yield "empty in", WHY_UNKNOWN.get(made.basis, between(made.p50, made.p90))
        if made.p50 is not None and not made.paused:
            yield "empty at", f"{_clock(made, made.p50)}, and by {_clock(made, made.p90)} with 90 % probability"
        if made.basis == "learnt" and made.arrivals_per_second >= MIN_ARRIVALS:
            yield "if jobs keep arriving", _arriving(made)
    if made.gpu_seconds:
        yield f"{made.unit}s left", f"{made.gpu_seconds:,.0f}"
    if made.delayed:
        yield "not due yet", f"{_jobs(made.delayed)}, not counted above"
    if made.unserved:
        yield "without an engine", f"{_jobs(made.unserved)} whose model no engine serves, not counted above"


def _jobs(number: float) -> str:
    return count(round(number), "job")


def between(p50: float | None, p90: float | None) -> str:
    """A median and a ninth decile in words; a dash if they are not known."""
    if p50 is None or p90 is None:
        return "-"
    return f"about {whole(p50)}, and within {whole(p90)} with 90 % probability"


def whole(seconds: float) -> str:
    """Seconds without the fraction that an estimate does not have."""
    up = math.ceil(max(seconds, 0))
    return f"{up} s" if up < 60 else times.spell(up)


def _clock(made: Forecast, seconds: float | None) -> str:
    return times.local(datetime.fromtimestamp(made.at + (seconds or 0.0), UTC))


def _arriving(made: Forecast) -> str:
    rate = times.per_time(made.arrivals_per_second)
    if made.with_arrivals_p50 is None:
        return f"never: {rate} arrive, more than the engines finish"
    return f"about {whole(made.with_arrivals_p50)}, with {rate} arriving"


def _risks(made: Forecast) -> Iterator[tuple[str, object]]:
    if made.deadlines:
        whose = "its" if round(made.late) == 1 else "their"
        if_back = " if the engines came back now" if made.basis == "no_engine" else ""
        yield "late", f"{_jobs(made.late)} will miss {whose} deadline{if_back}, or {made.late_p90:,.0f} at a slow pace"
    if made.publish_at is not None:
        when = times.local(datetime.fromtimestamp(made.publish_at, UTC))
        if made.publish_left is None or made.publish_left_p90 is None:
            yield "publishing", f"at {when}; how many jobs will still be open then is not known"
        else:
            left = f"{_jobs(made.publish_left)} will still be open, or {made.publish_left_p90:,.0f} at a slow pace"
            yield "publishing", f"at {when}, {left}"


def _past(past: Accuracy) -> str:
    if past.median_error is None or past.p90_held is None:
        return "none to compare with yet"
    drains = "the last drain" if past.drains == 1 else f"the last {past.drains:,} drains"
    apart = f", without {past.disturbed:,} during which jobs arrived or the queue was paused" if past.disturbed else ""
    held = f"the time of 90 % probability held in {100 * past.p90_held:.0f} %"
    errors = f"median error {100 * past.median_error:.0f} %; {held}"
    return f"{errors} ({count(past.forecasts, 'forecast')} of {drains}{apart})"


def _kinds(made: Forecast) -> None:
    if not made.kinds:
        return
    heads = [
        Column("kind"),
        Column("model"),
        *(Column(head, number=True) for head in ("jobs", f"{made.unit}s", "learnt from")),
    ]
    rows = [
        [
            each.kind,
            each.model or "any",
            f"{each.jobs:,.0f}",
            _seconds(each.gpu_seconds),
            f"{each.learnt_from:,.0f}",
        ]
        for each in made.kinds
    ]
    typer.echo("")
    table("", heads, rows)


def _seconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds:,.1f}"


def _late(made: Forecast) -> None:
    late = [each for each in made.deadlines if each.late_p90 >= 0.5]  # of a job
    if not late:
        return
    heads = [Column("deadline"), *(Column(head, number=True) for head in ("jobs", "late", "late at a slow pace"))]
    rows = [
        [_clock(made, each.seconds), f"{each.jobs:,.0f}", f"{each.late:,.0f}", f"{each.late_p90:,.0f}"]
        for each in late[:MAX_LATE_ROWS]
    ]
    typer.echo("")
    table("", heads, rows)
