"""The report of `thothy chaos` as text."""

from __future__ import annotations

from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING

import typer

from thothy_ai.cli.views.tables import Column, count, table

if TYPE_CHECKING:
    from thothy_ai.chaos.run import ChaosReport


def print_report(report: ChaosReport) -> None:
    summary = report.summary
    counts = {
        "jobs sent to the queue": summary.jobs,
        "follow-up jobs": summary.follow_ups,
        **{f"  {state}": number for state, number in summary.states.items()},
        "  dead because of the faults alone": summary.dead_of_faults,
        "missing": summary.missing,
        "duplicates": summary.duplicates,
        "messages sent": summary.sent,
        "messages lost with Redis' data": summary.lost_in_redis,
        "jobs republished": summary.republished,
        "attempts": summary.attempts,
        "attempts lost": summary.attempts_lost,
        "attempts released": summary.attempts_released,
        "jobs beyond their attempts": summary.beyond_limit,
        "results fenced, at least": summary.results_fenced,
        "engine sessions": summary.engine_sessions,
    }
    seconds = {
        "engine busy": summary.busy_seconds,
        "billed to attempts": summary.billed_seconds,
        "of those wasted: attempts lost": summary.wasted_seconds,
        "of those divided: attempt unknown": summary.divided_seconds,
        f"drain of {summary.baseline_jobs:,} jobs without faults": summary.baseline_seconds,
        f"drain of {summary.faulted_jobs:,} jobs with faults": summary.faulted_seconds,
        "the same without, at that rate": summary.faulted_seconds_without_faults,
    }
    rows = [(name, f"{number:,}") for name, number in counts.items()]
    rows += [(name, f"{value:.1f} s") for name, value in seconds.items()]
    title = f"Chaos, seed {report.options.seed}: {count(len(report.faults), 'fault')}"
    table(title, (Column("what"), Column("number", number=True)), rows)
    by_invariant = sorted(set(report.violations), key=attrgetter("invariant", "subject"))
    for invariant, found in groupby(by_invariant, key=attrgetter("invariant")):
        typer.echo(f"\nViolated: {invariant}")
        for violation in found:
            typer.echo(f"  {violation.subject}: {violation.description}")
    typer.echo()
