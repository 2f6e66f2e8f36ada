"""`thothy chaos`: break a stack of its own, again and again, and see that nothing is lost and nothing done twice."""

from __future__ import annotations

import signal
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from thothy_ai.cli.shell import AsJson, fail, load_settings, print_json, table

if TYPE_CHECKING:
    from types import FrameType

    from thothy_ai.chaos.options import ChaosOptions
    from thothy_ai.chaos.run import Report
    from thothy_ai.settings import Settings

app = typer.Typer()


class Engine(StrEnum):
    """What answers the jobs."""

    NULL = "null"
    REAL = "real"


@app.command()
def chaos(
    seed: Annotated[int, typer.Option(help="Draws the faults and their order.")] = 1,
    jobs: Annotated[int, typer.Option(min=10, help="Jobs to send.")] = 10_000,
    faults: Annotated[int, typer.Option(min=0, help="Faults to inject.")] = 40,
    engine: Annotated[Engine, typer.Option(help="null answers at once; real runs the model, and takes its time.")] = (
        Engine.NULL
    ),
    minutes: Annotated[float, typer.Option(min=0.1, help="Give up after so long.")] = 10,
    as_json: AsJson = False,
) -> None:
    """Break a stack of its own while it drains a queue, and check that nothing is lost and nothing done twice.

    Exit code 0 only if every fault came and every invariant holds. It uses no running stack and no data of yours.
    Example: thothy chaos --seed 7
    """
    from thothy_ai.chaos.options import ChaosOptions
    from thothy_ai.chaos.run import run_chaos
    from thothy_ai.telemetry import configure_logging

    settings = load_settings()
    configure_logging(settings.model_copy(update={"log_level": "ERROR"}))  # everything goes wrong here, and is meant to
    signal.signal(signal.SIGTERM, _interrupt)
    options = ChaosOptions(seed, jobs, faults, _model(settings) if engine is Engine.REAL else None, minutes)
    try:
        report = run_chaos(options, lambda line: typer.echo(line, err=True))
    except KeyboardInterrupt:
        fail("interrupted; everything it had started is gone")
    _print(report, options, as_json=as_json)
    if report.violations:
        fail(f"{len(report.violations)} violations; logs are in {report.logs}")
    if report.not_injected:
        fail(f"gave up after {minutes:g} minutes: {report.not_injected} of {faults} faults did not come")


def _model(settings: Settings) -> Path:
    """The model they name, else the bundled one."""
    from thothy_ai.engine.bundled import bundled_model_path

    return settings.model or bundled_model_path()


def _print(report: Report, options: ChaosOptions, *, as_json: bool) -> None:
    if as_json:
        print_json(report.to_json())
        return
    table(f"Chaos, seed {options.seed}: {len(report.faults)} faults", ("what", "number#"), _rows(report))
    if report.violations:
        rows = [(violation.who, violation.invariant, violation.how) for violation in report.violations]
        table("Violations", ("job", "what must hold", "what is"), rows)


def _rows(report: Report) -> list[tuple[str, str]]:
    ledger = report.ledger
    counts = {
        "jobs sent to the queue": ledger.jobs,
        "follow-up jobs": ledger.follow_ups,
        **{f"  {state}": count for state, count in ledger.states.items()},
        "  dead because of the faults alone": ledger.dead_of_faults,
        "missing": ledger.missing,
        "duplicates": ledger.duplicates,
        "messages sent": ledger.sent,
        "messages lost with Redis' data": ledger.lost_in_redis,
        "jobs republished": ledger.republished,
        "attempts": ledger.attempts,
        "attempts lost": ledger.attempts_lost,
        "attempts released": ledger.attempts_released,
        "jobs beyond their attempts": ledger.beyond_limit,
        "results fenced, at least": ledger.results_fenced,
        "engine sessions": ledger.engine_sessions,
    }
    seconds = {
        "engine busy": ledger.busy_seconds,
        "booked to attempts": ledger.booked_seconds,
        "of those wasted: attempts lost": ledger.wasted_seconds,
        "of those divided: nobody knew": ledger.divided_seconds,
        f"drain of {ledger.calm_jobs:,} jobs without faults": ledger.calm_seconds,
        f"drain of {ledger.storm_jobs:,} jobs with faults": ledger.storm_seconds,
        "the same without, at that rate": ledger.storm_seconds_without_faults,
    }
    return [(name, f"{count:,}") for name, count in counts.items()] + [
        (name, f"{value:.1f} s") for name, value in seconds.items()
    ]


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
