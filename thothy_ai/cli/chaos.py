"""`thothy chaos`: breaks a stack of its own repeatedly, and checks that nothing is lost and nothing done twice."""

from __future__ import annotations

import signal
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from thothy_ai.cli.shell import AsJson, fail, load_settings
from thothy_ai.cli.tables import count, print_json, table

if TYPE_CHECKING:
    from types import FrameType

    from thothy_ai.chaos.options import ChaosOptions
    from thothy_ai.chaos.run import Report
    from thothy_ai.settings import Settings

app = typer.Typer()


class Engine(StrEnum):
    """Which engine answers the jobs."""

    NULL = "null"
    REAL = "real"


@app.command()
def chaos(
    seed: Annotated[int, typer.Option(help="Seed of the faults and their order.")] = 1,
    jobs: Annotated[int, typer.Option(min=10, help="Jobs to send.")] = 10_000,
    faults: Annotated[int, typer.Option(min=0, help="Faults to inject.")] = 40,
    engine: Annotated[
        Engine, typer.Option(help="null answers without a model; real runs the model, which takes longer.")
    ] = (Engine.NULL),
    minutes: Annotated[float, typer.Option(min=0.1, help="Give up after this many minutes.")] = 10,
    as_json: AsJson = False,
) -> None:
    """Break a stack of its own while it drains a queue, and check that nothing is lost and nothing done twice.

    Exits with 0 only if every fault was injected and every invariant holds. It uses no running stack and none of your
    data.

    Example: thothy chaos --seed 7
    """
    from thothy_ai.chaos.options import ChaosOptions
    from thothy_ai.chaos.run import run_chaos
    from thothy_ai.telemetry import configure_logging

    settings = load_settings()
    configure_logging(settings.model_copy(update={"log_level": "ERROR"}))  # errors are expected here
    signal.signal(signal.SIGTERM, _interrupt)
    options = ChaosOptions(seed, jobs, faults, _model(settings) if engine is Engine.REAL else None, minutes)
    try:
        report = run_chaos(options, lambda line: typer.echo(line, err=True))
    except KeyboardInterrupt:
        fail("interrupted; everything that was started has been removed")
    _print(report, options, as_json=as_json)
    if report.violations:
        fail(f"{count(len(report.violations), 'violation')}; logs are in {report.logs}")
    if report.not_injected:
        fail(f"gave up after {minutes:g} min: {report.not_injected} of {count(faults, 'fault')} were not injected")


def _model(settings: Settings) -> Path:
    """The model named in the settings, otherwise the bundled one."""
    from thothy_ai.engine.bundled import bundled_model_path

    return settings.model or bundled_model_path()


def _print(report: Report, options: ChaosOptions, *, as_json: bool) -> None:
    if as_json:
        print_json(report.to_json())
        return
    table(f"Chaos, seed {options.seed}: {count(len(report.faults), 'fault')}", ("what", "number#"), _rows(report))
    if report.violations:
        rows = [(violation.subject, violation.invariant, violation.description) for violation in report.violations]
        table("Violations", ("job", "invariant", "found"), rows)


def _rows(report: Report) -> list[tuple[str, str]]:
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
    return [(name, f"{number:,}") for name, number in counts.items()] + [
        (name, f"{value:.1f} s") for name, value in seconds.items()
    ]


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
