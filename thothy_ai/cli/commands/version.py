"""`thothy --version`."""

from __future__ import annotations

import platform
from typing import Annotated

import typer

from thothy_ai import __version__


def _print(wanted: bool) -> None:
    if wanted:
        typer.echo(f"thothy {__version__} (Python {platform.python_version()})")
        raise typer.Exit


Version = Annotated[
    bool,
    typer.Option("--version", callback=_print, is_eager=True, help="Print the version and exit."),
]
