"""The `thothy` command. To start fast, commands are imported when they are run, and heavy modules inside them."""

from __future__ import annotations

import gc
import platform
from typing import Annotated, Any

import typer

from thothy_ai import __version__
from thothy_ai.cli.commands import Commands, summary_of
from thothy_ai.cli.root import RootGroup, describe

_OBJECTS_BEFORE_COLLECTION = 200_000


class Thothy(RootGroup):
    """All commands of `thothy`, each imported when it is looked up."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = Commands()  # type: ignore[assignment] # nothing is added to it

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        command = super().get_command(ctx, cmd_name)
        if command is not None:
            describe(command)
        return command

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 - Typer names it
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary_of(name)) for name in self.commands])


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
    # A command makes some 120,000 objects, most of them by importing, and hardly any garbage.
    gc.set_threshold(_OBJECTS_BEFORE_COLLECTION)
    app()
