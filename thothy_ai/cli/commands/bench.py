"""`thothy bench`: benchmarks of the engine on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from thothy_ai.bench.measure import BenchReport
    from thothy_ai.bench.progress import Progress

app = typer.Typer(name="bench", no_args_is_help=True, help="Measure the engine on this machine.")

# The benchmark also runs on machines without Typer, so that it has a parser of its own, which gets all arguments.
_PASS_THROUGH = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}


@app.command(context_settings=_PASS_THROUGH, short_help="Drain a workload file and print the figures.")
def drain(context: typer.Context) -> None:
    """Drain a workload file, or with --kinds real jobs, through an engine in this process and print the figures.

    Example: thothy bench drain benchmarks/workloads/templates.json --shape llama-8b
    """
    from thothy_ai.bench.command import main
    from thothy_ai.bench.service.backlog import engine_requests

    main(context.args, program=context.command_path, make_requests=engine_requests)


@app.command(context_settings=_PASS_THROUGH, short_help="Run jobs through the service and straight to its engine.")
def service(context: typer.Context) -> None:
    """Run the same jobs through a whole service on this machine and straight to its engine, and print the figures.

    Example: thothy bench service --shape llama-8b --tokenizer FOLDER
    """
    from thothy_ai.bench.command import run_and_print
    from thothy_ai.bench.options import parse_service

    options = parse_service(context.args, program=context.command_path)

    def measure(progress: Progress) -> BenchReport:
        from thothy_ai.bench.service.run import measure_service

        return measure_service(options, progress)

    run_and_print(options, measure)
