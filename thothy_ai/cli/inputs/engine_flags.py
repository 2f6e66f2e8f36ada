"""The flags of `thothy engine`, made from the declaration of the engine's options."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from thothy_ai.engine.api.options import Command, Declared, EngineOptions, all_options, options_of

if TYPE_CHECKING:
    from thothy_ai.settings import Settings


def with_engine_flags(run: Callable[..., None]) -> Callable[..., None]:
    """A command with the engine's flags, which `run` receives as keyword arguments, and with its help."""
    parameters = [_parameter(declared) for declared in options_of(Command.ENGINE)]

    def command(**given: Any) -> None:
        run(**given)

    command.__name__, command.__doc__ = run.__name__, run.__doc__
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined] # what inspect reads
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return command


def engine_options(given: Mapping[str, Any], settings: Settings) -> EngineOptions:
    """Options from flags, and from settings where no flag is given. Raises `ConfigError` for a required one."""
    values = {name: value for name, value in given.items() if value is not None}
    for declared in all_options():
        setting = declared.option.setting
        if not setting or declared.name in values or (declared.name == "model" and given["null"]):
            continue
        require = getattr(settings, f"require_{setting}", None)  # of settings without which an engine cannot run
        value = require() if require else getattr(settings, setting)
        values[declared.name] = value.get_secret_value() if hasattr(value, "get_secret_value") else value
    return EngineOptions(**values)


def _parameter(declared: Declared) -> inspect.Parameter:
    option, default = declared.option, declared.default
    flag = typer.Option(
        f"{declared.flag}/{declared.negation}" if declared.negation else declared.flag,
        help=option.help + (f" Default: THOTHY_{option.setting.upper()}." if option.setting else ""),
        metavar=option.metavar,
        envvar=None if option.setting else declared.variable,
        min=option.minimum,
        max=option.maximum,
        show_default=default is not None and default is not False,
    )
    keyword = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(declared.name, keyword, default=default, annotation=Annotated[_kind(declared), flag])


def _kind(declared: Declared) -> Any:
    """The type as Typer reads it."""
    if choices := declared.option.choices:
        return StrEnum(declared.name, {choice: choice for choice in choices})
    return declared.kind | None if declared.default is None else declared.kind
