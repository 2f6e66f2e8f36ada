"""`errors.md`: why jobs have no artifact, the engine's error codes, the exceptions of the Python API."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import TypeVar
from uuid import UUID

import typer
from typer.testing import CliRunner

from docs.generate.markdown import code, page, paragraph, table
from docs.generate.reasons import AT_ONCE, ENGINE_ADVICE, FAILURES, FREE, LATER, NO, REJECTIONS, Reason
from thothy_ai import errors
from thothy_ai.cli.root import RootGroup
from thothy_ai.engine.api.errors import (
    EngineError,
    EngineLostError,
    EngineNotAcceptingError,
    EngineStoppedError,
    ModelLoadError,
    UninvolvedError,
    UnknownAdapterError,
)
from thothy_ai.plans.running_call import REFUSALS

E = TypeVar("E", bound=Exception)


def errors_page() -> str:
    """The page."""
    return page(
        "Errors",
        "Why a job has no artifact, and what the errors of the engine, of the Python API and of the command line mean.",
        "A job is retried until it has counted `THOTHY_MAX_ATTEMPTS` failures; then it is *dead*, with the reason of"
        " its last attempt.\n`thothy report` counts the reasons, `thothy dead list` groups dead jobs by them, and"
        " `thothy jobs show ID` has the details.",
        "## Reasons to reject an output",
        "The validators found that the text cannot be published.",
        table(("Reason", "What it means", "Retried", "What to do"), _rejections()),
        "## Reasons without an output",
        "The attempt ended before there was an output to judge. Codes of the engine, below, occur as reasons too.",
        table(("Reason", "What it means", "Retried", "What to do"), _described(FAILURES)),
        "## Errors of the engine",
        "The code is stored as the job's reason; an engine that cannot start prints the message and exits with 2.",
        table(("Code", "What it means", "Job retried", "What to do"), _engine_errors()),
        "## Exceptions",
        "What the producer raises, all of them subclasses of `thothy_ai.errors.ThothyError`, each with a message of"
        " one line; and the\n[exit code](exit-codes.md) of a command that ends with it.",
        table(("Exception", "Subclass of", "Exit code", "What it means"), _exceptions()),
    )


def engine_errors() -> Iterator[type[EngineError]]:
    """The engine's errors, parents first."""
    return _tree(EngineError)


def _rejections() -> Iterator[tuple[str, ...]]:
    for reason, (meaning, advice) in REJECTIONS.items():
        yield code(reason), meaning, AT_ONCE if reason.retryable else NO, advice


def _described(reasons: Mapping[str, Reason]) -> Iterator[tuple[str, ...]]:
    return ((code(name), reason.meaning, reason.retried, reason.advice) for name, reason in reasons.items())


def _engine_errors() -> Iterator[tuple[str, ...]]:
    for error in engine_errors():
        yield code(error.code), paragraph(error.__doc__), _retried(error), ENGINE_ADVICE[error.code]


def _retried(error: type[EngineError]) -> str:
    """What becomes of a job whose request ends with this error, as `worker/attempt.py` decides it."""
    if issubclass(error, ModelLoadError):
        return "waits: there is no engine"
    if issubclass(error, UnknownAdapterError):
        return FREE
    if issubclass(error, REFUSALS):
        return NO
    if issubclass(error, EngineLostError) and not issubclass(error, UninvolvedError):
        return "yes; an engine death is counted if the engine died"
    free = EngineStoppedError | EngineNotAcceptingError | UninvolvedError
    return FREE if issubclass(error, free) else LATER


def _exceptions() -> Iterator[tuple[str, ...]]:
    for error in dict.fromkeys(_tree(errors.ThothyError)):  # one may have two parents
        base = error.__bases__[0].__name__
        yield code(error.__name__), code(base), str(exit_code(error)), paragraph(error.__doc__)


def exit_code(error: type[errors.ThothyError]) -> int:
    """The exit code of a command that ends with this error."""
    app = typer.Typer(cls=RootGroup, add_completion=False)

    @app.command()
    def ends_with_it() -> None:
        raise _example(error)

    @app.callback()
    def _root() -> None:
        """Makes it a group."""

    return CliRunner().invoke(app, ["ends-with-it"]).exit_code


def _example(error: type[errors.ThothyError]) -> errors.ThothyError:
    """An error of this type, about anything."""
    try:
        parameters = inspect.signature(error).parameters.values()
    except ValueError:  # without an `__init__` of its own: that of `Exception` may have no signature
        return error("x")
    required = [each for each in parameters if each.default is each.empty]
    values = {"UUID": UUID(int=0), "float": 1.0, "Sequence[UUID]": ()}
    return error(*(values.get(str(each.annotation), "x") for each in required if each.kind is not each.VAR_KEYWORD))


def _tree(root: type[E]) -> Iterator[type[E]]:
    """The error and those below it, parents first, all of one module."""
    yield root
    for child in root.__subclasses__():
        if child.__module__ == root.__module__:
            yield from _tree(child)
