"""The `thothy` command. Its commands are imported when they are run, and what is heavy inside them, to start fast."""

from __future__ import annotations

import platform
from typing import Annotated

import typer

from thothy_ai import __version__
from thothy_ai.cli.root import Thothy

app = typer.Typer(
    name="thothy",
    cls=Thothy,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Drain a queue of content jobs through a resident GPU engine, and report jobs per GPU-hour.",
)


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
