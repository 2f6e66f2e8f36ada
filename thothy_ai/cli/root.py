"""The root command group: every error becomes one line on standard error and an exit code."""

from __future__ import annotations

import os
import re
import sys
from typing import Any

import typer
from typer.completion import completion_init  # type: ignore[attr-defined] # public, though not marked so
from typer.core import TyperGroup

from thothy_ai.cli.inputs.help_names import name_values
from thothy_ai.cli.shell import COMPLETE_VARIABLE, FAILED, INTERRUPTED, PROGRAM, WRONG_INPUT, fail
from thothy_ai.errors import ConfigError, EntryError, NotConnectedError

_REWORDED = (  # from the style of Typer and pydantic to ours
    (re.compile(r"^Invalid value: "), ""),
    (re.compile(r"Value error, "), ""),
    (re.compile(r"\. Did you mean (.*?)\??$"), r"; did you mean \1?"),
    (re.compile(r"^Got unexpected extra argument\(?s?\)? \((.*)\)$"), r"unexpected argument: \1"),
    (re.compile(r"\.$"), ""),
)


class RootGroup(TyperGroup):
    """A group whose errors are one line."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        describe(self)

    def main(self, *args: Any, standalone_mode: bool = True, **extra: Any) -> Any:
        """Run the command line, and exit with its code unless `standalone_mode` is off."""
        if COMPLETE_VARIABLE in os.environ:
            completion_init()
        extra |= {"prog_name": PROGRAM, "complete_var": COMPLETE_VARIABLE}
        try:
            code = self._run(*args, **extra)
            sys.stdout.flush()
        except BrokenPipeError:  # `| head` has read enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the interpreter flushes stdout at exit
            code = FAILED
        except typer.Exit as ended:
            code = ended.exit_code
        if standalone_mode:
            sys.exit(code)
        return code

    def _run(self, *args: Any, **extra: Any) -> Any:
        try:
            return super().main(*args, **{**extra, "standalone_mode": False})
        except typer.Abort as aborted:
            if isinstance(aborted.__context__, KeyboardInterrupt):  # at a prompt
                raise typer.Exit(INTERRUPTED) from None
            fail("aborted; nothing was changed")
        except Exception as error:
            # Typer brings its own Click, whose classes for usage errors it does not export.
            if hasattr(error, "format_message") and hasattr(error, "exit_code"):
                if type(error).__name__ == "NoArgsIsHelpError":
                    error.show()  # type: ignore[attr-defined] # of Click
                    raise typer.Exit(WRONG_INPUT) from None
                fail(_usage_message(error), error.exit_code)
            if isinstance(error, BrokenPipeError) or os.environ.get("THOTHY_LOG_LEVEL", "").upper() == "DEBUG":
                raise
            if type(error).__module__.startswith("thothy_ai."):
                # A missing stack is not a mistake in what was typed.
                wrong = isinstance(error, ConfigError | EntryError) and not isinstance(error, NotConnectedError)
                fail(error, WRONG_INPUT if wrong else FAILED)
            fail(f"unexpected {type(error).__name__}: {error} (set THOTHY_LOG_LEVEL=DEBUG for a traceback)")


def describe(command: Any) -> None:
    """Show the whole first sentence of each command in lists of commands, where Typer would cut it."""
    name_values(command)
    sentence, end, _ = " ".join((command.help or "").split()).partition(". ")
    command.short_help = command.short_help or sentence + end.rstrip()
    for each in getattr(command, "commands", {}).values():
        describe(each)


def _usage_message(error: Any) -> str:
    """The message of a usage error in our style, with the nearest valid choice and the command whose help to read."""
    from difflib import get_close_matches

    from pydantic import ValidationError

    from thothy_ai.jobs.problems import first_problem

    if isinstance(error.__cause__, ValidationError):
        error.message = first_problem(error.__cause__)[1]
    if possible := getattr(error, "possibilities", None):
        near = (get_close_matches(error.option_name, possible, n=1) or possible)[0]
        error.message, error.possibilities = f"{error.message}; did you mean {near}?", None
    message: str = error.format_message()
    if message.startswith("No such command") and "Did you mean" not in message:
        message = f"{message.rstrip('.')}; there are {', '.join(error.ctx.command.list_commands(error.ctx))}"
    for pattern, plain in _REWORDED:
        message = pattern.sub(plain, message)
    context = getattr(error, "ctx", None)
    hint = f" (see `{context.command_path} --help`)" if context is not None else ""
    return message[0].lower() + message[1:] + hint
