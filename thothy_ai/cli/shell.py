"""What every command shares: one-line errors, the database, tables and JSON on standard output."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from thothy_ai.cli import times
from thothy_ai.errors import DatabaseError, DatabaseUnreachableError

if TYPE_CHECKING:
    from rich.console import Console
    from sqlalchemy import Engine

    from thothy_ai.settings import Settings

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead: stable keys, times in UTC.")]


# What drives a terminal, or turns the text around on it.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def fail(message: object) -> NoReturn:
    """End the command: one line on standard error, exit code 1."""
    line = printable(" ".join(str(message).split()))
    typer.echo(f"thothy: {line}", err=True)
    raise typer.Exit(1)


def usage(message: str) -> NoReturn:
    """End the command because of how it was called: exit code 2."""
    raise typer.BadParameter(message)


class Commands(TyperGroup):
    """The root: turns errors into one line and exit code 1."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command that was asked for."""
        try:
            return super().invoke(ctx)
        except Exception as error:
            if _typers_own(error) or os.environ.get("THOTHY_LOG_LEVEL", "").upper() == "DEBUG":
                raise
            if type(error).__module__.startswith("thothy_ai."):  # raised on purpose, worded for a person
                fail(error)
            name = type(error).__name__
            fail(f"unexpected {name}: {error} (THOTHY_LOG_LEVEL=DEBUG shows where)")


def _typers_own(error: Exception) -> bool:
    """What Typer itself reports (usage, exits), and a reader that closed the pipe."""
    return type(error).__module__.partition(".")[0] in {"typer", "click"} or isinstance(error, BrokenPipeError)


def load_settings() -> Settings:
    """The settings of this process. Raises `ConfigError`."""
    from thothy_ai.settings import Settings

    return Settings.load()


@contextmanager
def database() -> Iterator[Engine]:
    """An engine to Postgres, with the driver's errors translated; disposed of at the end."""
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

        check_schema(settings)  # an old schema is the usual cause, and says so better than Postgres does
        raise
    finally:
        engine.dispose()


def console(*, stderr: bool = False) -> Console:
    """Where tables go. Without a terminal nothing is cut off or coloured."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    return Console(file=stream, width=None if stream.isatty() else 160, highlight=False, soft_wrap=False)


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print rows under their columns. A column that ends in `#` is a number, set flush right."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    shown = Table(title=title or None, box=box.SIMPLE_HEAD, title_justify="left", pad_edge=False)
    for column in columns:
        number = column.endswith("#")
        shown.add_column(column.rstrip("#"), justify="right" if number else "left", overflow="fold")
    for row in rows:
        shown.add_row(*(Text(cell(value)) for value in row))
    console().print(shown)


def cell(value: object) -> str:
    """A value as text for people."""
    if value is None or value == "":
        return "-"
    return times.local(value) if isinstance(value, datetime) else printable(str(value))


def printable(text: str) -> str:
    """A model's or a stranger's text without control characters, which would drive the terminal; lines stay."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)


def print_json(value: Any) -> None:
    """Print a value as one JSON document."""
    typer.echo(document(value, indent=2))


def document(value: Any, indent: int | None = None) -> str:
    """A value as JSON whose text is readable, and drives no terminal: JSON itself escapes only the oldest codes."""
    text = json.dumps(value, default=plain, ensure_ascii=False, indent=indent)
    return _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def plain(value: object) -> str:
    """A value that JSON has no form for, as text: times in UTC."""
    return times.utc(value) if isinstance(value, datetime) else str(value)


def confirm(question: str) -> None:
    """Ask before what cannot be undone; where nobody can be asked, it is a usage error."""
    if not _somebody_is_there():
        usage("nobody is there to be asked: --yes says that you mean it")
    typer.confirm(question, abort=True)


def _somebody_is_there() -> bool:
    return sys.stdin.isatty()
