"""Shared by all commands: one-line errors, exit codes, settings, model, database connection, confirmation.

Exit codes: 0 success; 1 the command failed, or the answer is no; 2 wrong input or settings; 3 no engine serves the
remaining jobs; 130 Ctrl-C.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from getpass import getuser
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from thothy_ai.cli.views.tables import printable
from thothy_ai.errors import DatabaseError, DatabaseUnreachableError

if TYPE_CHECKING:
    from pathlib import Path

    from sqlalchemy import Engine

    from thothy_ai.settings import Settings

PROGRAM, COMPLETE_VARIABLE = "thothy", "_THOTHY_COMPLETE"  # a shell asks for completions with this variable
FAILED, WRONG_INPUT, UNSERVED, INTERRUPTED = 1, 2, 3, 130
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Skip the confirmation prompt.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON with stable keys and UTC times.")]
MAX_NOTE_CHARS = 500
LONG_SECONDS = 600.0  # for a statement over months of work


def fail(message: object, code: int = FAILED) -> NoReturn:
    """Print one line to standard error and exit."""
    line = printable(" ".join(str(message).split()))
    typer.echo(f"thothy: {line}", err=True)
    raise typer.Exit(code)


def usage(message: str) -> NoReturn:
    """Report a usage error: exit with 2."""
    raise typer.BadParameter(message)


def user_name() -> str:
    """The account that runs this command."""
    with suppress(KeyError, OSError):  # the user of a container may have no name
        return getuser()
    return f"uid {os.getuid()}"


def operator() -> str:
    """Who runs this command, and where; it is recorded with changes."""
    return f"{user_name()} on {socket.gethostname()}"


def door_address(settings: Settings) -> str:
    """The address at which people on this machine reach the HTTP server."""
    host = f"[{settings.http_host}]" if ":" in settings.http_host else settings.http_host
    return f"{'https' if settings.http_tls_certificate else 'http'}://{host}:{settings.http_port}"


def check_note(option: str, note: str | None) -> None:
    """Refuse a note that would fill a screen. Raises `BadParameter`."""
    if note is not None and len(note) > MAX_NOTE_CHARS:
        usage(f"{option} has {len(note):,} characters; the limit is {MAX_NOTE_CHARS}")


def load_settings(**overrides: Any) -> Settings:
    """Load the settings of this process, and warn once of unknown variables. `overrides` take precedence.

    Raises `ConfigError`.
    """
    from thothy_ai.settings import Settings, unknown_variables

    settings = Settings.load(**overrides)
    if unknown_variables(Settings.variables(), settings.home):
        from thothy_ai.engine.api.options import engine_variables

        for variable in unknown_variables((*Settings.variables(), *engine_variables()), settings.home):
            _warn_once(str(variable))
    return settings


@cache
def _warn_once(message: str) -> None:
    typer.echo(f"thothy: {printable(message)}", err=True)


def find_model(settings: Settings, given: Path | None) -> Path:
    """The given model, otherwise the settings' model or the bundled one. Raises `BadParameter` if it does not exist."""
    from thothy_ai.engine.checkpoint.bundled import bundled_model_path

    path = given or settings.model or bundled_model_path()
    if not path.exists():
        usage(f"no model at {path}")
    return path


@contextmanager
def database(answer_seconds: float = 15.0) -> Iterator[Engine]:
    """Yield a database engine whose statements are answered within `answer_seconds`, or fail.

    Driver errors are raised as `DatabaseError` or a subclass.
    """
    from thothy_ai.db.connect import make_engine, reaching
    from thothy_ai.db.pooler import refuse_undeclared_mode

    settings = load_settings()
    refuse_undeclared_mode(settings)
    engine = make_engine(settings, application="cli", pool_size=1, answer_seconds=answer_seconds)
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


def confirm(question: str) -> None:
    """Ask for confirmation. Without a terminal to ask on, it is a usage error."""
    if not stdin_is_a_terminal():
        usage("stdin is not a terminal; pass --yes to confirm")
    typer.confirm(question, abort=True)


def stdin_is_a_terminal() -> bool:
    return sys.stdin.isatty()
