"""Shared by all commands: one-line errors, the database connection, tables and JSON on standard output."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from thothy_ai.cli import times
from thothy_ai.errors import DatabaseError, DatabaseUnreachableError

if TYPE_CHECKING:
    from rich.console import Console
    from sqlalchemy import Engine

    from thothy_ai.settings import Settings

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Skip the confirmation prompt.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON with stable keys and UTC times.")]


# Control characters and bidirectional overrides, which could manipulate a terminal.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def fail(message: object) -> NoReturn:
    """Print one line to standard error and exit with 1."""
    line = printable(" ".join(str(message).split()))
    typer.echo(f"thothy: {line}", err=True)
    raise typer.Exit(1)


def usage(message: str) -> NoReturn:
    """Report a usage error: exit with 2."""
    raise typer.BadParameter(message)


class Commands(TyperGroup):
    """The root command group: reports an error as one line and exits with 1."""

    def invoke(self, ctx: Any) -> Any:
        """Run the requested command."""
        try:
            return super().invoke(ctx)
        except Exception as error:
            if _handled_by_typer(error) or os.environ.get("THOTHY_LOG_LEVEL", "").upper() == "DEBUG":
                raise
            if type(error).__module__.startswith("thothy_ai."):  # raised deliberately, with a message for operators
                fail(error)
            name = type(error).__name__
            fail(f"unexpected {name}: {error} (set THOTHY_LOG_LEVEL=DEBUG for a traceback)")


def _handled_by_typer(error: Exception) -> bool:
    """Whether Typer itself reports this error: usage errors, exits, and a closed output pipe."""
    return type(error).__module__.partition(".")[0] in {"typer", "click"} or isinstance(error, BrokenPipeError)


def load_settings() -> Settings:
    """Load the settings of this process, and warn once of variables that are none. Raises `ConfigError`."""
    from thothy_ai.settings import Settings, unknown_variables

    settings = Settings.load()
    for variable in unknown_variables(Settings.model_fields, settings.home):
        _warn_once(str(variable))
    return settings


@cache
def _warn_once(message: str) -> None:
    typer.echo(f"thothy: {printable(message)}", err=True)


@contextmanager
def database() -> Iterator[Engine]:
    """Yield a database engine. Driver errors are raised as `DatabaseError` or a subclass."""
    from thothy_ai.db.connect import make_engine, reaching

    settings = load_settings()
    engine = make_engine(settings, application="cli", pool_size=1)
    try:
        with reaching(settings):
            yield engine
    except DatabaseUnreachableError:
        raise
    except DatabaseError:
        from thothy_ai.db.schema import check_schema

        check_schema(settings)  # an outdated schema is the usual cause; its error message is clearer
        raise
    finally:
        engine.dispose()


def console(*, stderr: bool = False) -> Console:
    """A console for tables. Without a terminal, output is 160 columns wide and uncoloured."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    return Console(file=stream, width=None if stream.isatty() else 160, highlight=False, soft_wrap=False)


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table. A column whose name ends in `#` is right-aligned."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    grid = Table(title=title or None, box=box.SIMPLE_HEAD, title_justify="left", pad_edge=False)
    for column in columns:
        is_number = column.endswith("#")
        grid.add_column(column.rstrip("#"), justify="right" if is_number else "left", overflow="fold")
    for row in rows:
        grid.add_row(*(Text(cell(value)) for value in row))
    console().print(grid)


def cell(value: object) -> str:
    """Format a table cell: times in local time, a dash for None and the empty string."""
    if value is None or value == "":
        return "-"
    return times.local(value) if isinstance(value, datetime) else printable(str(value))


def printable(text: str) -> str:
    """Replace control characters, which could manipulate the terminal, except for line breaks and tabs."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)


def print_json(value: Any) -> None:
    """Print a value as one JSON document."""
    typer.echo(json_text(value, indent=2))


def json_text(value: Any, indent: int | None = None) -> str:
    """Encode as JSON. Only control characters are escaped, including those above U+001F that JSON allows."""
    text = json.dumps(value, default=_to_text, ensure_ascii=False, indent=indent)
    return _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _to_text(value: object) -> str:
    """Convert a value that JSON cannot represent; times become ISO 8601 in UTC."""
    return times.utc(value) if isinstance(value, datetime) else str(value)


def confirm(question: str) -> None:
    """Ask for confirmation. Without a terminal to ask on, it is a usage error."""
    if not _stdin_is_a_terminal():
        usage("stdin is not a terminal; pass --yes to confirm")
    typer.confirm(question, abort=True)


def _stdin_is_a_terminal() -> bool:
    return sys.stdin.isatty()
