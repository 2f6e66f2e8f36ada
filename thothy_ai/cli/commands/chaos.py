"""`thothy chaos`: breaks a stack of its own repeatedly, and checks that nothing is lost and nothing done twice."""

from __future__ import annotations

import signal
from enum import StrEnum
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from thothy_ai.cli.shell import INTERRUPTED, AsJson, fail, load_settings
from thothy_ai.cli.views.tables import Column, count, print_json, table

if TYPE_CHECKING:
    from types import FrameType

    from thothy_ai.chaos.run import ChaosReport
    from thothy_ai.settings import Settings

app = typer.Typer()


class Engine(StrEnum):
    """Which engine answers the jobs."""

    NULL = "null"
    REAL = "real"


@app.command()
def chaos(
    seed: Annotated[int, typer.Option(help="Seed of the faults and their order.")] = 1,
    jobs: Annotated[int, typer.Option(min=10, help="Number of jobs.")] = 10_000,
    faults: Annotated[int, typer.Option(min=0, help="Number of faults to inject.")] = 40,
    engine: Annotated[
        Engine, typer.Option(help="null answers without a model; real runs the model, which takes longer.")
    ] = (Engine.NULL),
    engines: Annotated[
        int,
        typer.Option(min=1, max=8, help="Number of engines; with several, each has a worker, and machines are lost."),
    ] = 1,
    minutes: Annotated[float, typer.Option(min=0.1, help="Give up after this many minutes.")] = 10,
    as_json: AsJson = False,
) -> None:
    """Inject faults into a stack of its own while it drains a queue; check that nothing is lost or done twice.

    Exit with 0 only if every fault was injected and every invariant holds. A running stack and your data are not used.

    Example: thothy chaos --seed 7
    """
    from thothy_ai.chaos.options import ChaosOptions
    from thothy_ai.chaos.run import run_chaos
    from thothy_ai.telemetry import configure_logging

    settings = load_settings()
    configure_logging(settings.model_copy(update={"log_level": "ERROR"}))  # errors are expected here
    signal.signal(signal.SIGTERM, _interrupt)
    options = ChaosOptions(seed, jobs, faults, _model(settings) if engine is Engine.REAL else None, minutes, engines)
    try:
        report = run_chaos(options, lambda line: typer.echo(line, err=True))
    except KeyboardInterrupt:
        fail("interrupted; everything that it started has been removed", INTERRUPTED)
    if as_json:
        print_json(report.to_json())
    else:
        _print(report)
    _conclude(report, quiet=as_json)


def _model(settings: Settings) -> Path:
    """The model named in the settings, otherwise the bundled one."""
    from thothy_ai.engine.checkpoint.bundled import bundled_model_path

    return settings.model or bundled_model_path()


def _print(report: ChaosReport) -> None:
    title = f"Chaos, seed {report.options.seed}: {count(len(report.faults), 'fault')}"
    table(title, (Column("what"), Column("number", number=True)), _rows(report))
    by_invariant = sorted(set(report.violations), key=attrgetter("invariant", "subject"))
    for invariant, found in groupby(by_invariant, key=attrgetter("invariant")):
        typer.echo(f"\nViolated: {invariant}")
        for violation in found:
            typer.echo(f"  {violation.subject}: {violation.description}")
    typer.echo()


def _conclude(report: ChaosReport, *, quiet: bool) -> None:
    """The verdict: one line. Exits with 1 unless every fault was injected and every invariant holds."""
    options = report.options
    violated = len({violation.invariant for violation in report.violations})
    if violated:
        verb = "is" if violated == 1 else "are"
        fail(f"{count(violated, 'invariant')} {verb} violated; logs are in {report.logs}")
    if report.not_injected:
        gave_up = f"gave up after {options.minutes:g} min"
        fail(f"{gave_up}: {report.not_injected:,} of {count(options.faults, 'fault')} were not injected")
    if not quiet:
        done = f"{count(options.jobs, 'job')}, {count(options.faults, 'fault')}"
        typer.echo(f"All invariants hold: {done}, nothing was lost or done twice.")


def _rows(report: ChaosReport) -> list[tuple[str, str]]:
    summary = report.summary
    counts = {
        "jobs sent to the queue": summary.jobs,
        "follow-up jobs": summary.follow_ups,
        **{f"  {state}": count for state, count in summary.states.items()},
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
    return [(name, f"{count:,}") for name, count in counts.items()] + [
        (name, f"{value:.1f} s") for name, value in seconds.items()
    ]


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
