"""`thothy chaos`: breaks a stack of its own repeatedly, and checks that nothing is lost and nothing done twice."""

from __future__ import annotations

import signal
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from thothy_ai.cli.shell import INTERRUPTED, AsJson, fail, load_settings
from thothy_ai.cli.views.chaos import print_report
from thothy_ai.cli.views.tables import count, print_json

if TYPE_CHECKING:
    from thothy_ai.chaos.run import ChaosReport

app = typer.Typer()


class ChaosEngine(StrEnum):
    NULL = "null"
    REAL = "real"


@app.command()
def chaos(
    seed: Annotated[int, typer.Option(help="Seed of the faults and their order.")] = 1,
    jobs: Annotated[int, typer.Option(min=10, help="Number of jobs.")] = 10_000,
    faults: Annotated[int, typer.Option(min=0, help="Number of faults to inject.")] = 40,
    engine: Annotated[
        ChaosEngine, typer.Option(help="null answers without a model; real runs the model, which takes longer.")
    ] = ChaosEngine.NULL,
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
    from thothy_ai.engine.checkpoint.bundled import bundled_model_path
    from thothy_ai.telemetry import configure_logging

    settings = load_settings()
    configure_logging(settings.model_copy(update={"log_level": "ERROR"}))  # errors are expected here
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # raises KeyboardInterrupt
    model = (settings.model or bundled_model_path()) if engine is ChaosEngine.REAL else None
    options = ChaosOptions(seed, jobs, faults, model, minutes, engines)
    try:
        report = run_chaos(options, lambda line: typer.echo(line, err=True))
    except KeyboardInterrupt:
        fail("interrupted; everything that it started has been removed", INTERRUPTED)
    if as_json:
        print_json(report.to_json())
    else:
        print_report(report)
    _conclude(report, quiet=as_json)


def _conclude(report: ChaosReport, *, quiet: bool) -> None:
    """Print the verdict in one line. Exit with 1 unless every fault was injected and every invariant holds."""
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
