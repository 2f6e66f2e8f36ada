"""A forecast as text: when the queue is empty, which jobs will be late, and how wrong earlier forecasts were."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import typer

from thothy_ai.admin.durations import per_time, spell_whole
from thothy_ai.cli.views.tables import Column, count, print_fields, print_text, table
from thothy_ai.cli.views.times import local
from thothy_ai.queue.moments import LATEST

if TYPE_CHECKING:
    from thothy_ai.queue.forecast.accuracy import Accuracy
    from thothy_ai.queue.forecast.outlook import Forecast

WHY_UNKNOWN = {
    "no_engine": "not known: no engine is ready. `thothy doctor` says what to do.",
    "no_history": "not known: no job has finished yet, and what a job costs is learnt from those that have.",
}
UNPROVED = "not enough history yet"
MAX_LATE_ROWS = 10
MIN_ARRIVALS = 0.05 / 60  # per second; less is shown as 0.0 jobs/min


def print_forecast(made: Forecast, past: Accuracy) -> None:
    """Print the forecast, with the accuracy of earlier ones."""
    if made.paused:
        print_text("The queue is paused: the times count from when it is resumed.")
    print_fields([*time_fields(made), *risk_fields(made), ("earlier forecasts", accuracy_words(past))])
    if made.kinds:
        heads = ("jobs", f"{made.unit}s", "learnt from")
        rows: list[list[object]] = [
            [
                each.kind,
                each.model or "any",
                f"{each.jobs:,.0f}",
                "-" if each.gpu_seconds is None else f"{each.gpu_seconds:,.1f}",
                f"{each.learnt_from:,.0f}",
            ]
            for each in made.kinds
        ]
        typer.echo("")
        table("", [Column("kind"), Column("model"), *(Column(head, number=True) for head in heads)], rows)
    late = [each for each in made.deadlines if each.late_p90 >= 0.5]  # of a job
    if late:
        rows = [
            [_clock(made, each.seconds), f"{each.jobs:,.0f}", f"{each.late:,.0f}", f"{each.late_p90:,.0f}"]
            for each in late[:MAX_LATE_ROWS]
        ]
        heads = ("jobs", "late", "late at a slow pace")
        typer.echo("")
        table("", [Column("deadline"), *(Column(head, number=True) for head in heads)], rows)


def time_fields(made: Forecast) -> Iterator[tuple[str, object]]:
    """When the queue is empty, and what the forecast leaves out."""
    if made.basis == "empty":
        yield "queue", "nothing that can run now" if made.delayed or made.unserved else "empty"
    else:
        back = f", {made.returning:,} starting again" if made.returning else ""
        yield "queue", f"{_jobs(made.open_jobs)} due or running, {count(made.engines, 'engine')} ready{back}"
        within, at = _times(made)
        yield "empty in", WHY_UNKNOWN.get(made.basis, within)
        if made.p50 is not None and not made.paused:
            yield "empty at", at
        if made.basis == "learnt" and made.arrivals_per_second >= MIN_ARRIVALS:
            rate = per_time(made.arrivals_per_second)
            if made.with_arrivals_p50 is None:
                yield "if jobs keep arriving", f"never: {rate} arrive, more than the engines finish"
            else:
                yield "if jobs keep arriving", f"about {spell_whole(made.with_arrivals_p50)}, with {rate} arriving"
    if made.gpu_seconds:
        yield f"{made.unit}s left", f"{made.gpu_seconds:,.0f}"
    if made.delayed:
        yield "not due yet", f"{_jobs(made.delayed)}, not counted above"
    if made.unserved:
        yield "without an engine", f"{_jobs(made.unserved)} whose model no engine serves, not counted above"


def _times(made: Forecast) -> tuple[str, str]:
    """The time to empty and the moment, with their bounds if earlier bounds have held."""
    if made.p50 is None:
        return "-", "-"
    within, at = f"about {spell_whole(made.p50)}", _clock(made, made.p50)
    if made.p90 is None:
        return f"{within} (90 %: {UNPROVED})", at
    slow, by = spell_whole(made.p90), _clock(made, made.p90)
    return f"{within}, and within {slow} with 90 % probability", f"{at}, and by {by} with 90 % probability"


def risk_fields(made: Forecast) -> Iterator[tuple[str, object]]:
    """Jobs that miss their deadline, and jobs that are open at the next publishing."""
    if made.deadlines:
        its = "its" if round(made.late) == 1 else "their"
        if_back = " if the engines came back now" if made.basis == "no_engine" else ""
        yield "late", f"{_jobs(made.late)} will miss {its} deadline{if_back}, or {made.late_p90:,.0f} at a slow pace"
    if made.publish_at is not None:
        when = local(datetime.fromtimestamp(made.publish_at, UTC))
        if made.publish_left is None or made.publish_left_p90 is None:
            yield "publishing", f"at {when}; how many jobs will still be open then is not known"
        else:
            left = f"{_jobs(made.publish_left)} will still be open, or {made.publish_left_p90:,.0f} at a slow pace"
            yield "publishing", f"at {when}, {left}"


def accuracy_words(past: Accuracy) -> str:
    if past.median_error is None or past.p90_held is None:
        return "none to compare with yet"
    drains = "the last drain" if past.drains == 1 else f"the last {past.drains:,} drains"
    apart = f", without {past.disturbed:,} during which jobs arrived or the queue was paused" if past.disturbed else ""
    held = f"the time of 90 % probability held in {100 * past.p90_held:.0f} %"
    errors = f"median error {100 * past.median_error:.0f} %; {held}"
    return f"{errors} ({count(past.forecasts, 'forecast')} of {drains}{apart})"


def _jobs(number: float) -> str:
    return count(round(number), "job")


def _clock(made: Forecast, seconds: float) -> str:
    return local(datetime.fromtimestamp(min(made.at + seconds, LATEST.timestamp()), UTC))
