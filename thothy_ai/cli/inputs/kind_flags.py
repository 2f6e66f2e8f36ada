"""Derives the options of `thothy enqueue KIND` from the fields of the kind's request class.

Each field becomes an option. A long text field also gets `--FIELD-file`, the option of a list may be repeated, and
nested values are JSON. Values reach pydantic as typed, so that the schema alone decides what is valid.
"""

from __future__ import annotations

import inspect
import json
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import typer
from pydantic import BaseModel

from thothy_ai.cli.inputs.help_names import value_name
from thothy_ai.cli.inputs.parameters import keyword, with_parameters
from thothy_ai.jobs.api.brief import Brief

_LIMITS = {"ge": "at least", "gt": "more than", "le": "at most", "lt": "less than"}
RESERVED = frozenset(  # parameters of `thothy enqueue` and `thothy ask` that all kinds share
    (
        "priority", "deadline", "not_before", "key", "max_attempts", "max_compute_seconds",
        "attempts", "seed", "model", "template_option", "as_json", "json", "help",
    )
)  # fmt: skip
MIN_FILE_TEXT_CHARS = 1000  # a field that may be at least this long can be read from a file
MAX_FILE_BYTES = 4_200_000  # a little more than the longest text that a request accepts


@dataclass(frozen=True, slots=True)
class Flag:
    """A field of a request as an option."""

    field: str
    many: bool
    file: bool
    nested: bool
    named: bool  # its value is JSON, or the name of a stored value
    metavar: str
    help: str

    @property
    def name(self) -> str:
        """The field's name, with the prefix `request_` if it is that of a shared parameter."""
        return f"request_{self.field}" if self.field in RESERVED else self.field

    @property
    def option(self) -> str:
        return "--" + self.name.replace("_", "-")

    def parameters(self) -> list[inspect.Parameter]:
        """The parameters that Typer turns into options: the field's and, if it can be a file, `--FIELD-file`."""
        annotation: Any = list[str] | None if self.many else str | None
        option = typer.Option(self.option, metavar=self.metavar, help=self.help, show_default=False)
        parameters = [keyword(self.name, Annotated[annotation, option])]
        if self.file:
            file = typer.Option(
                f"{self.option}-file", metavar="FILE", help=f"File to read {self.option} from; - reads standard input."
            )
            parameters.append(keyword(f"{self.name}_file", Annotated[str | None, file]))
        return parameters

    def value(self, given: Mapping[str, Any]) -> Any:
        """The field's value, None if neither of its options was given. Raises `BadParameter`."""
        typed, file = given.get(self.name), given.get(f"{self.name}_file")
        if typed and file:
            raise typer.BadParameter(f"{self.option} and {self.option}-file are mutually exclusive")
        if file:
            return read_text(file)
        if typed is None or typed == []:
            return None
        if not self.nested or (self.named and not str(typed).lstrip().startswith("{")):
            return typed
        try:
            return [json.loads(item) for item in typed] if self.many else json.loads(typed)
        except json.JSONDecodeError as error:
            raise typer.BadParameter(f"{self.option} expects JSON: {error}") from None


def flags_of(request: type[BaseModel]) -> list[Flag]:
    flags = []
    for name, field in request.model_fields.items():
        plain = _without_none(field.annotation)
        many = get_origin(plain) in {list, tuple, set, frozenset}
        item = _without_none(get_args(plain)[0]) if many else plain
        nested = get_origin(item) is dict or (isinstance(item, type) and issubclass(item, BaseModel | dict))
        default = field.get_default(call_default_factory=True)
        shown = default.value if isinstance(default, Enum) else default
        stated = f"Default: {shown}." if default or isinstance(default, int | float) else ""
        parts = [
            field.description,
            _limits(field.metadata),
            "Required." if field.is_required() else stated,
            "May be repeated." if many else "",
        ]
        named = item is Brief
        metavar = "NAME|JSON" if named else "JSON" if nested else _metavar(item)
        # A text that no constraint keeps short can be read from a file.
        long = item is str and all(
            (getattr(limit, "max_length", None) or 0) >= MIN_FILE_TEXT_CHARS or hasattr(limit, "min_length")
            for limit in field.metadata
        )
        flags.append(Flag(name, many, long, nested, named, metavar, " ".join(part for part in parts if part)))
    return flags


def values_of(flags: list[Flag], given: Mapping[str, Any]) -> dict[str, Any]:
    """The values of the fields that were given, by field name."""
    values = {flag.field: flag.value(given) for flag in flags}
    return {name: value for name, value in values.items() if value is not None}


def with_flags(run: Callable[..., None], flags: list[Flag]) -> Callable[..., None]:
    """`run` as a command with the flags' parameters before its own keyword-only ones."""
    own = [p for p in inspect.signature(run, eval_str=True).parameters.values() if p.kind is p.KEYWORD_ONLY]
    return with_parameters(run, [*(parameter for flag in flags for parameter in flag.parameters()), *own])


def read_text(file: str) -> str:
    """Read a UTF-8 file, or standard input for `-`. Raises `BadParameter`."""
    try:
        with nullcontext(sys.stdin.buffer) if file == "-" else Path(file).open("rb") as opened:
            raw = opened.read(MAX_FILE_BYTES + 1)
        if len(raw) > MAX_FILE_BYTES:
            raise typer.BadParameter(f"{file} is longer than {MAX_FILE_BYTES:,} bytes")
        return raw.decode("utf-8-sig")
    except OSError as error:
        raise typer.BadParameter(f"cannot read {file}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise typer.BadParameter(f"{file} is not UTF-8 text: {error.reason} at byte {error.start}") from None


def _limits(metadata: Sequence[Any]) -> str:
    limits = {name: getattr(each, name) for each in metadata for name in _LIMITS if hasattr(each, name)}
    if limits.keys() == {"ge", "le"}:
        return f"{limits['ge']:,} to {limits['le']:,}."
    said = " and ".join(f"{_LIMITS[name]} {value:,}" for name, value in limits.items())
    return f"{said.capitalize()}." if said else ""


def _metavar(annotation: Any) -> str:
    """The name of a value of this type: its choices, as typed in a shell, `N`, `NUMBER` or `TEXT`."""
    plain = _without_none(annotation)
    if plain is not annotation:
        return _metavar(plain)
    choices: Sequence[Any] = ("true", "false") if plain is bool else ()
    if isinstance(plain, type) and issubclass(plain, Enum):
        choices = [member.value for member in plain]
    elif get_origin(plain) is Literal:
        choices = get_args(plain)
    if choices:
        return "|".join(shlex.quote(str(choice)) for choice in choices)
    return next((value_name(kind.__name__) for kind in (int, float) if plain is kind), "TEXT")


def _without_none(annotation: Any) -> Any:
    if get_origin(annotation) in {Union, UnionType}:
        rest = [part for part in get_args(annotation) if part is not type(None)]
        return rest[0] if len(rest) == 1 else annotation
    return get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation
