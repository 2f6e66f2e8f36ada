"""`thothy bench`: what this machine's engine does, measured."""

from __future__ import annotations

import typer

app = typer.Typer(no_args_is_help=True, help="Measure the engine on this machine.")

# The benchmark runs on machines without Typer too, so its parser is its own; all that is typed goes there.
_PASSED_ON = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}


@app.callback()
def _bench() -> None:
    """No command of its own."""


@app.command(context_settings=_PASSED_ON, short_help="Drain a workload file and print what it took.")
def drain(context: typer.Context) -> None:
    """Drain a workload file through an engine in this process, check its tokens and print what it took.

    Example: thothy bench drain benchmarks/workloads/templates.json --shape llama-8b
    """
    from thothy_ai.bench.command import main

    main(context.args, program=context.command_path)
