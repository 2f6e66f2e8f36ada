"""`settings.md`: the settings of every process, the engine's options, the variables of the Compose file."""

from __future__ import annotations

import re
from enum import Enum
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import SecretStr
from pydantic.fields import FieldInfo

from docs.generate.compose_variables import MEANINGS, ComposeVariable, compose_variables
from docs.generate.markdown import code, listed, page, table
from thothy_ai.engine.api.options import Command, Declared, all_options
from thothy_ai.jobs.text.locales import Locale
from thothy_ai.settings import PREFIX, STACK_ENV, PublishingTime, Settings

ROOT = Path(__file__).parents[2]
_TYPES = {int: "whole number", float: "number", str: "text", Path: "path", bool: "switch", SecretStr: "text, secret"}
_TYPES[PublishingTime] = "text"
_TYPES[tuple] = "texts"
_IS_LOCALE = get_args(Locale)[1]
_COMMANDS = {Command.ENGINE: "engine", Command.BENCH: "bench"}


def settings_page() -> str:
    """The page."""
    secret_files = (name for name in Settings.variables() if name.endswith("_FILE"))
    return page(
        "Settings",
        f"Every process is configured by `{PREFIX}*` environment variables; what is not set there is read from"
        f" `$THOTHY_HOME/{STACK_ENV}`, which a\nrunning `thothy up` writes, and then has the default shown here.",
        "A command that finds a wrong value says which variable it is and what it must look like, and exits with 2;"
        "\n`thothy doctor` checks them all. An empty variable counts as not set.",
        table(("Variable", "Type", "Default", "Description"), map(_setting, Settings.model_fields.items())),
        "## Secrets from files",
        "Each secret can also be read from a file, whose path is in the variable with `_FILE` appended:"
        f"\n{listed(secret_files)}. The file has one line. A variable wins over\nits file.",
        "## Options of the engine",
        "The options of `thothy engine`, and of the engine in `thothy bench drain` and `thothy bench service`. `thothy"
        " engine` reads each option\nfrom a variable as well: `--kv-dtype` from `THOTHY_ENGINE_KV_DTYPE`. What is typed"
        " wins. A switch is `on` or `off`. `thothy up` passes\nthem on to its engine.",
        table(("Option", "Variable", "Command", "Type", "Default", "Description"), map(_option, _options())),
        "These have no option of their own:",
        table(("Property", "Value", "Description"), map(_fixed, _options(of_commands=False))),
        "## Variables of the Compose file",
        "Compose reads these from `.env`, and passes the settings and engine options above on to the containers."
        " `.env.example`\nhas all of them with their defaults.",
        table(("Variable", "Default", "In", "Description"), map(_compose_variable, compose_variables())),
    )


def type_of(annotation: Any, metadata: list[Any] | None = None) -> str:
    """A type in words, with the limits in its metadata."""
    plain, limits = _plain(annotation, metadata or [])
    if _IS_LOCALE in limits:
        return "locale"
    if get_origin(plain) is Literal:
        return "one of " + listed(get_args(plain))
    if isinstance(plain, type) and issubclass(plain, Enum):
        return "one of " + listed(member.value for member in plain)
    if get_origin(plain) in {tuple, list, set, frozenset}:
        items = type_of(get_args(plain)[0])
        return f"list of {items}" + _range(limits, " items")
    if choices := _choices(limits):
        return "one of " + listed(choices)
    unit = " characters" if plain is str else ""
    return _TYPES.get(plain, getattr(plain, "__name__", "object")) + _range(limits, unit)


def _plain(annotation: Any, metadata: list[Any]) -> tuple[Any, list[Any]]:
    """The type without None and annotations, and all metadata on the way."""
    if get_origin(annotation) is Annotated:
        inner, *more = get_args(annotation)
        found = [item for each in more for item in (each.metadata if isinstance(each, FieldInfo) else [each])]
        return _plain(inner, metadata + found)
    if get_origin(annotation) in {Union, UnionType}:
        rest = [part for part in get_args(annotation) if part is not type(None)]
        return _plain(rest[0], metadata)
    return annotation, metadata


def _choices(limits: list[Any]) -> list[str]:
    """The values of a pattern such as `^(A|B)$`."""
    patterns = [pattern for limit in limits if (pattern := getattr(limit, "pattern", None))]
    found = [re.fullmatch(r"\^\(([\w|]+)\)\$", str(pattern)) for pattern in patterns]
    return [choice for match in found if match for choice in match[1].split("|")]


def _range(limits: list[Any], unit: str = "") -> str:
    """The limits in words: `, 1 to 5`, `, more than 0`; a least length of 1 goes without saying."""
    low, above, high = _limit(limits, "ge", "min_length"), _limit(limits, "gt"), _limit(limits, "le", "max_length")
    words = _span(None if unit and low == 1 else low, high)
    return f", {words}{unit}" if words else f", more than {above:g}" if above is not None else ""


def _span(low: float | None, high: float | None) -> str:
    match low, high:
        case None, None:
            return ""
        case None, _:
            return f"at most {high:,}"
        case _, None:
            return f"{low:,} or more"
        case _:
            return f"{low:,} to {high:,}"


def _limit(limits: list[Any], *names: str) -> Any:
    values = (getattr(limit, name, None) for limit in limits for name in names)
    return next((value for value in values if value is not None), None)


def shown(default: Any) -> str:
    """A default as it would be typed."""
    match default:
        case None | ():
            return "not set"
        case dict():
            return ", ".join(f"{key}={value}" for key, value in default.items()) or "not set"
        case bool():
            return "on" if default else "off"
        case Enum():
            return code(default.value)
        case _:
            return code(f"{default:g}" if isinstance(default, float) else str(default))


def _setting(entry: tuple[str, FieldInfo]) -> tuple[str, str, str, str]:
    name, field = entry
    kind = type_of(field.annotation, field.metadata)
    if kind == "list of text":
        kind = "list, comma-separated"
    return code(PREFIX + name.upper()), kind, shown(field.default), field.description or ""


def _options(*, of_commands: bool = True) -> list[Declared]:
    """The engine's options that some command has, or those that none has."""
    return [declared for declared in all_options() if bool(declared.option.commands) is of_commands]


def _option(declared: Declared) -> tuple[str, str, str, str, str, str]:
    option = declared.option
    flag = " / ".join(code(each) for each in (declared.flag, declared.negation) if each)
    commands = listed(_COMMANDS[each] for each in Command if each in option.commands)
    words = filter(None, (_TYPES[declared.kind], _span(option.minimum, option.maximum)))
    kind = "one of " + listed(option.choices) if option.choices else ", ".join(words)
    return flag, code(declared.variable), commands, kind, _default(declared), option.help


def _fixed(declared: Declared) -> tuple[str, str, str]:
    return code(declared.name), _default(declared), declared.option.help


def _default(declared: Declared) -> str:
    """The default, or the setting that it comes from; without either, the help text says it."""
    if declared.option.setting:
        return code(PREFIX + declared.option.setting.upper())
    if declared.default is None:
        return "see right" if "Default:" in declared.option.help else "suits the device"
    return shown(declared.default)


def _compose_variable(row: ComposeVariable) -> tuple[str, str, str, str]:
    default = code(row.default) if row.default else "not set"
    return code(row.name), default, code(row.file), MEANINGS.get(row.name, "As above.")
