"""The flags of `thothy engine`, made from the declaration of the engine's options."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from thothy_ai.cli.inputs.parameters import keyword, with_parameters
from thothy_ai.engine.api.options import Command, EngineOptions, all_options, options_of

if TYPE_CHECKING:
    from thothy_ai.settings import Settings


def with_engine_flags(run: Callable[..., None]) -> Callable[..., None]:
    """`run` as a command with the engine's flags, which it gets as keyword arguments."""
    parameters = []
    for declared in options_of(Command.ENGINE):
        option, default = declared.option, None if declared.is_repeated else declared.default
        kind = list[str] if declared.is_repeated else declared.kind
        plain = kind | None if default is None else kind
        taken: Any = StrEnum(declared.name, {choice: choice for choice in option.choices}) if option.choices else plain
        flag = typer.Option(
            f"{declared.flag}/{declared.negation}" if declared.negation else declared.flag,
            help=option.help + (f" Default: THOTHY_{option.setting.upper()}." if option.setting else ""),
            metavar=option.metavar,
            envvar=None if option.setting else declared.variable,
            min=option.minimum,
            max=option.maximum,
            show_default=default is not None and default is not False,
        )
        parameters.append(keyword(declared.name, Annotated[taken, flag], default))
    return with_parameters(run, parameters)


def engine_options(given: Mapping[str, Any], settings: Settings) -> EngineOptions:
    """Options from flags, and from settings where no flag is given. Raises `ConfigError` for a required one."""
    values = {name: value for name, value in given.items() if value is not None}
    for declared in all_options():
        if declared.is_repeated and declared.name in values:
            values[declared.name] = tuple(values[declared.name])
        setting = declared.option.setting
        if not setting or declared.name in values or (declared.name == "model" and given["null"]):
            continue
        require = getattr(settings, f"require_{setting}", None)  # a setting without which an engine cannot run
        value = require() if require else getattr(settings, setting)
        values[declared.name] = value.get_secret_value() if hasattr(value, "get_secret_value") else value
    return EngineOptions(**values)
