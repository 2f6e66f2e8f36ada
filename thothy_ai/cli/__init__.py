"""The `thothy` command: one module per command group. Heavy imports happen inside commands, to keep help fast."""

from __future__ import annotations

import platform
from typing import Annotated

import typer

from thothy_ai import __version__
from thothy_ai.cli.commands import (
    alerts,
    artifacts,
    ask,
    bench,
    chaos,
    completion,
    database,
    dead,
    doctor,
    drain,
    engines,
    enqueue,
    evaluation,
    history,
    jobs,
    logs,
    models,
    queue,
    report,
    roles,
    services,
    stack,
    top,
    webhooks,
)
from thothy_ai.cli.root import RootGroup

app = typer.Typer(
    name="thothy",
    cls=RootGroup,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Drain a queue of content jobs through a resident GPU engine, and report jobs per GPU-hour.",
)
app.add_typer(stack.app)
app.add_typer(enqueue.app, name="enqueue")
app.add_typer(ask.app, name="ask")
app.add_typer(evaluation.app)
app.add_typer(jobs.app, name="jobs")
app.add_typer(dead.app, name="dead")
app.add_typer(history.app, name="history")
app.add_typer(artifacts.app, name="artifacts")
app.add_typer(drain.app)
app.add_typer(report.app)
app.add_typer(queue.app, name="queue")
app.add_typer(top.app)
app.add_typer(database.app)
app.add_typer(roles.app, name="roles")
app.add_typer(webhooks.app, name="webhooks")
app.add_typer(doctor.app)
app.add_typer(engines.app)
app.add_typer(logs.app)
app.add_typer(chaos.app)
app.add_typer(bench.app, name="bench")
app.add_typer(models.app, name="models")
app.add_typer(services.app)
app.add_typer(alerts.app)
app.add_typer(completion.app)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"thothy {__version__} (Python {platform.python_version()})")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit."),
    ] = False,
) -> None:
    """Settings come from THOTHY_* environment variables, then from the running embedded stack."""


def main() -> None:
    """Run the command line. An error is one line on standard error; the exit code is 1, or 2 for a usage error."""
    app()
