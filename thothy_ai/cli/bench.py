"""`thothy bench`: benchmarks of the engine on this machine."""

from __future__ import annotations

import typer

app = typer.Typer(no_args_is_help=True, help="Measure the engine on this machine.")

# The benchmark also runs on machines without Typer, so that it has a parser of its own, which gets all arguments.
_PASS_THROUGH = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}


@app.callback()
def _bench() -> None:
    """Keeps `drain` a subcommand: a group with one command would become that command."""


@app.command(context_settings=_PASS_THROUGH, short_help="Drain a workload file and print the figures.")
def drain(context: typer.Context) -> None:
    """Drain a workload file, or with --kinds real jobs, through an engine in this process and print the figures.

    Example: thothy bench drain benchmarks/workloads/templates.json --shape llama-8b
    """
    from thothy_ai.bench.command import main
    from thothy_ai.cli.bench_jobs import engine_requests

    main(context.args, program=context.command_path, make_requests=engine_requests)
