"""Shared by all commands: one-line errors, exit codes, settings, model, database connection, job ids, confirmation.

Exit codes: 0 success; 1 the command failed, or the answer is no; 2 what the user typed or set is wrong; 3 what is left
needs an engine that is not there; 130 Ctrl-C.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, NoReturn
from uuid import UUID

import typer
from typer.completion import completion_init  # type: ignore[attr-defined] # public, though not marked so
from typer.core import TyperGroup

from thothy_ai.cli.inputs.help_names import name_values
from thothy_ai.cli.views.tables import printable
from thothy_ai.errors import (
    ConfigError,
    DatabaseError,
    DatabaseUnreachableError,
    EntryError,
    NotConnectedError,
)

if TYPE_CHECKING:
    from pathlib import Path

    from sqlalchemy import Engine

    from thothy_ai.settings import Settings

PROGRAM, COMPLETE_VARIABLE = "thothy", "_THOTHY_COMPLETE"  # a shell asks for completions with this variable
FAILED, WRONG_INPUT, UNSERVED, INTERRUPTED = 1, 2, 3, 130
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Skip the confirmation prompt.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON with stable keys and UTC times.")]
MAX_NOTE_CHARS = 500
_PLAIN = (  # what Typer and pydantic say, and what is said instead
    (re.compile(r"^Invalid value: "), ""),
    (re.compile(r"Value error, "), ""),
    (re.compile(r"\. Did you mean (.*?)\??$"), r"; did you mean \1?"),
    (re.compile(r"^Got unexpected extra argument\(?s?\)? \((.*)\)$"), r"unexpected argument: \1"),
    (re.compile(r"\.$"), ""),
)
_ID_PART = re.compile(r"-*(?:[0-9a-f]-*){4,32}")


def fail(message: object, code: int = FAILED) -> NoReturn:
    """Print one line to standard error and exit."""
    line = printable(" ".join(str(message).split()))
    typer.echo(f"thothy: {line}", err=True)
    raise typer.Exit(code)


def usage(message: str) -> NoReturn:
    """Report a usage error: exit with 2."""
    raise typer.BadParameter(message)


def check_note(option: str, note: str | None) -> None:
    """Refuse a note that would fill a screen. Raises `BadParameter`."""
    if note is not None and len(note) > MAX_NOTE_CHARS:
        usage(f"{option} has {len(note):,} characters; the limit is {MAX_NOTE_CHARS}")


class Commands(TyperGroup):
    """The root command group: reports every error as one line on standard error."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        _describe_whole(self)

    def main(self, *args: Any, standalone_mode: bool = True, **extra: Any) -> Any:
        """Run the command line, and exit with its code unless a caller asked to do that itself."""
        if COMPLETE_VARIABLE in os.environ:
            completion_init()
        extra |= {"prog_name": PROGRAM, "complete_var": COMPLETE_VARIABLE}
        try:
            code = self._checked(*args, **extra)
            sys.stdout.flush()
        except BrokenPipeError:  # `| head` has read enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the interpreter flushes it at its end
            code = FAILED
        except typer.Exit as ended:
            code = ended.exit_code
        if standalone_mode:
            sys.exit(code)
        return code

    def _checked(self, *args: Any, **extra: Any) -> Any:
        try:
            return super().main(*args, **{**extra, "standalone_mode": False})
        except typer.Abort as aborted:
            if isinstance(aborted.__context__, KeyboardInterrupt):  # at a prompt
                raise typer.Exit(INTERRUPTED) from None
            fail("aborted; nothing was changed")
        except Exception as error:
            if _is_usage_error(error):
                _fail_usage(error)
            if isinstance(error, BrokenPipeError) or os.environ.get("THOTHY_LOG_LEVEL", "").upper() == "DEBUG":
                raise
            if type(error).__module__.startswith("thothy_ai."):
                fail(error, _exit_code(error))
            name = type(error).__name__
            fail(f"unexpected {name}: {error} (set THOTHY_LOG_LEVEL=DEBUG for a traceback)")


def _describe_whole(group: Any) -> None:
    """In lists of commands, the whole first sentence of each, on as many lines as it needs, in place of a cut one."""
    name_values(group)
    for command in group.commands.values():
        sentence, end, _ = " ".join((command.help or "").split()).partition(". ")
        command.short_help = command.short_help or sentence + end.rstrip()
        if hasattr(command, "commands"):
            _describe_whole(command)
        else:
            name_values(command)


def _exit_code(error: Exception) -> int:
    """Whether the input is wrong, or the answer is no. That no stack runs is no mistake in what was typed."""
    wrong = isinstance(error, ConfigError | EntryError) and not isinstance(error, NotConnectedError)
    return WRONG_INPUT if wrong else FAILED


def _is_usage_error(error: Exception) -> bool:
    """Whether Typer raised it about what was typed. Typer brings its own Click, whose classes it does not export."""
    return hasattr(error, "format_message") and hasattr(error, "exit_code")


def _fail_usage(error: Any) -> NoReturn:
    """Report a usage error as one line, with the command whose help shows what is right."""
    if type(error).__name__ == "NoArgsIsHelpError":
        error.show()
        raise typer.Exit(WRONG_INPUT)
    _reword(error)
    message = _plainly(error)
    context = getattr(error, "ctx", None)
    hint = f" (see `{context.command_path} --help`)" if context is not None else ""
    fail(message + hint, error.exit_code)


def _plainly(error: Any) -> str:
    """The message of a usage error in this program's style, with what was probably meant, or what there is."""
    message: str = error.format_message()
    if message.startswith("No such command") and "Did you mean" not in message:
        message = f"{message.rstrip('.')}; there are {', '.join(error.ctx.command.list_commands(error.ctx))}"
    for before, after in _PLAIN:
        message = before.sub(after, message)
    return message[0].lower() + message[1:]


def _reword(error: Any) -> None:
    """Replace pydantic's message about an option's value, and Click's list of similar options, by plain words."""
    from difflib import get_close_matches

    from pydantic import ValidationError

    from thothy_ai.jobs.problems import first_problem

    if isinstance(error.__cause__, ValidationError):
        error.message = first_problem(error.__cause__)[1]
    if possible := getattr(error, "possibilities", None):
        near = (get_close_matches(error.option_name, possible, n=1) or possible)[0]
        error.message, error.possibilities = f"{error.message}; did you mean {near}?", None


def load_settings() -> Settings:
    """Load the settings of this process, and warn once of variables that are none. Raises `ConfigError`."""
    from thothy_ai.engine.api.options import engine_variables
    from thothy_ai.settings import Settings, unknown_variables

    settings = Settings.load()
    for variable in unknown_variables((*Settings.variables(), *engine_variables()), settings.home):
        _warn_once(str(variable))
    return settings


@cache
def _warn_once(message: str) -> None:
    typer.echo(f"thothy: {printable(message)}", err=True)


def find_model(settings: Settings, given: Path | None) -> Path:
    """The model given, or that of the settings, or the bundled one. Raises `BadParameter` if it does not exist."""
    from thothy_ai.engine.checkpoint.bundled import bundled_model_path

    path = given or settings.model or bundled_model_path()
    if not path.exists():
        usage(f"no model at {path}")
    return path


@contextmanager
def database() -> Iterator[Engine]:
    """Yield a database engine. Driver errors are raised as `DatabaseError` or a subclass."""
    from thothy_ai.db.connect import make_engine, reaching
    from thothy_ai.db.pooler import refuse_undeclared_mode

    settings = load_settings()
    refuse_undeclared_mode(settings)
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


def job_ref(text: str) -> str:
    """Check that a text can be a job id or one end of it. Raises `BadParameter`."""
    ref = text.strip().lower()
    if not _ID_PART.fullmatch(ref):
        raise typer.BadParameter(f"{text!r} is not a job id, nor 4 or more hexadecimal digits of its beginning or end")
    return ref


def find_job(engine: Engine, ref: str) -> UUID:
    """The id that `ref`, its beginning or its end, stands for. Raises `UnknownJobError`, `AmbiguousIdError`."""
    return find_jobs(engine, [ref])[0]


def find_jobs(engine: Engine, refs: Sequence[str]) -> list[UUID]:
    """The ids that `refs` stand for, in the same order, each once."""
    from thothy_ai.admin.ids import resolve

    return list(dict.fromkeys(resolve(engine, ref) for ref in refs))


def confirm(question: str) -> None:
    """Ask for confirmation. Without a terminal to ask on, it is a usage error."""
    if not _stdin_is_a_terminal():
        usage("stdin is not a terminal; pass --yes to confirm")
    typer.confirm(question, abort=True)


def _stdin_is_a_terminal() -> bool:
    return sys.stdin.isatty()
