"""`thothy report forecast`: when the queue is empty, which jobs will be late, and how wrong earlier forecasts were."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import typer

from thothy_ai.cli import times
from thothy_ai.cli.shell import AsJson, database, load_settings
from thothy_ai.cli.tables import Column, count, print_fields, print_json, print_text, table

if TYPE_CHECKING:
    from thothy_ai.queue.forecast.accuracy import Accuracy
    from thothy_ai.queue.forecast.outlook import Forecast

WHY_UNKNOWN = {
    "no_engine": "not known: no engine is ready. `thothy doctor` says what to do.",
    "no_history": "not known: no job has finished yet, so that nothing is known about costs.",
}
MAX_LATE_ROWS = 10


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
        yield "queue", f"{made.open_jobs:,.0f} jobs due or running, {made.engines} engines ready"
        yield "empty in", WHY_UNKNOWN.get(made.basis, between(made.p50, made.p90))
        if made.p50 is not None and not made.paused:
            yield "that is at", f"{_clock(made, made.p50)} to {_clock(made, made.p90)}"
        if made.basis == "learnt":
            yield "if jobs keep arriving", _arriving(made)
    if made.gpu_seconds:
        yield "GPU-seconds left", f"{made.gpu_seconds:,.0f}"
    if made.delayed:
        yield "not due yet", f"{count(round(made.delayed), 'job')}, not counted"
    if made.unserved:
        yield "without an engine", f"{count(round(made.unserved), 'job')} of a model that no engine serves; not counted"


def between(p50: float | None, p90: float | None) -> str:
    """A median and a ninth decile in words; a dash if they are not known."""
    if p50 is None or p90 is None:
        return "-"
    return f"{whole(p50)}, with 90 % probability within {whole(p90)}"


def whole(seconds: float) -> str:
    """Seconds without the fraction that an estimate does not have."""
    up = math.ceil(max(seconds, 0))
    return f"{up} s" if up < 60 else times.spell(up)


def _clock(made: Forecast, seconds: float | None) -> str:
    return times.local(datetime.fromtimestamp(made.at + (seconds or 0.0), UTC))


def _arriving(made: Forecast) -> str:
    rate = times.per_time(made.arrivals_per_second)
    if made.with_arrivals_p50 is None:
        return f"never: {rate} arrive, which is more than the engines do"
    return f"{whole(made.with_arrivals_p50)} ({rate} arrive)"


def _risks(made: Forecast) -> Iterator[tuple[str, object]]:
    if made.deadlines:
        yield "late", f"{made.late:,.0f} jobs will miss their deadline; {made.late_p90:,.0f} at a slow pace"
    if made.publish_at is not None:
        when = times.local(datetime.fromtimestamp(made.publish_at, UTC))
        if made.publish_left is None or made.publish_left_p90 is None:
            yield "publishing", f"{when}; how many jobs will be open is not known"
        else:
            left = f"{made.publish_left:,.0f} jobs still open; {made.publish_left_p90:,.0f} at a slow pace"
            yield "publishing", f"{when}: {left}"


def _past(past: Accuracy) -> str:
    if past.median_error is None or past.p90_held is None:
        return "none to compare with yet"
    drains = f"{past.forecasts:,} forecasts of the last {past.drains:,} drains"
    apart = f"; {past.disturbed:,} disturbed ones left out" if past.disturbed else ""
    return f"median error {past.median_error:.0%}, 90 % held in {past.p90_held:.0%} ({drains}{apart})"


def _kinds(made: Forecast) -> None:
    if not made.kinds:
        return
    heads = [
        Column("kind"),
        Column("model"),
        *(Column(head, number=True) for head in ("jobs", "GPU-seconds", "learnt from")),
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
