"""A command for each job kind, made from its request's fields: `thothy enqueue trend_summary --audience …`.

Every field becomes a flag; a field that holds text also gets `--FIELD-file`, a list may be repeated, and anything
nested is given as JSON. Values go to pydantic as they were typed, so that the schema alone decides what is valid.
"""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, BinaryIO, Literal, Union, get_args, get_origin

import typer
from pydantic import BaseModel
from pydantic.fields import FieldInfo

RESERVED = frozenset({"priority", "deadline", "not_before", "key", "as_json"})  # parameters of every job
LONG = 1000  # characters; longer texts are kept in files
MAX_FILE_BYTES = 4_000_000  # no request may be longer than a tenth of this


@dataclass(frozen=True, slots=True)
class Flag:
    """One field of a request, and how it is typed on a command line."""

    field: str
    many: bool
    file: bool
    nested: bool
    help: str

    @property
    def name(self) -> str:
        """The parameter: the field's name, unless every job has a parameter of that name."""
        return f"request_{self.field}" if self.field in RESERVED else self.field

    @property
    def option(self) -> str:
        """The long option."""
        return "--" + self.name.replace("_", "-")

    def parameters(self) -> list[inspect.Parameter]:
        """The parameters that Typer makes options of."""
        kind: Any = list[str] | None if self.many else str | None
        parameters = [_parameter(self.name, kind, typer.Option(self.option, help=self.help, show_default=False))]
        if self.file:
            file = typer.Option(
                f"{self.option}-file", metavar="FILE", help="The same, from a file; - reads standard input."
            )
            parameters.append(_parameter(f"{self.name}_file", str | None, file))
        return parameters

    def value(self, given: Mapping[str, Any]) -> Any:
        """What was given for the field; None for nothing. Raises `BadParameter`."""
        typed, file = given.get(self.name), given.get(f"{self.name}_file")
        if typed and file:
            raise typer.BadParameter(f"{self.option} and {self.option}-file exclude each other")
        if file:
            return read_text(file)
        if typed is None or typed == []:
            return None
        return self._parsed(typed) if self.nested else typed

    def _parsed(self, typed: Any) -> Any:
        try:
            return [json.loads(item) for item in typed] if self.many else json.loads(typed)
        except json.JSONDecodeError as error:
            raise typer.BadParameter(f"{self.option} takes JSON: {error}") from None


def flags_of(request: type[BaseModel]) -> list[Flag]:
    """The flags of a request's fields, in their order."""
    return [_flag(name, field) for name, field in request.model_fields.items()]


def values_of(flags: list[Flag], given: Mapping[str, Any]) -> dict[str, Any]:
    """The request's fields that were given, as the schema takes them."""
    values = {flag.field: flag.value(given) for flag in flags}
    return {name: value for name, value in values.items() if value is not None}


def with_flags(run: Callable[..., None], flags: list[Flag]) -> Callable[..., None]:
    """`run` with these flags before its own parameters; it gets them as keyword arguments."""
    own = [p for p in inspect.signature(run, eval_str=True).parameters.values() if p.kind is p.KEYWORD_ONLY]
    fields = [parameter for flag in flags for parameter in flag.parameters()]

    def command(**given: Any) -> None:
        run(**given)

    command.__signature__ = inspect.Signature([*fields, *own])  # type: ignore[attr-defined] # what inspect reads
    command.__annotations__ = {p.name: p.annotation for p in [*fields, *own]}
    return command


def read_text(file: str) -> str:
    """A file's text, or standard input's for `-`. Raises `BadParameter`."""
    try:
        with nullcontext(sys.stdin.buffer) if file == "-" else Path(file).open("rb") as opened:
            return _text(opened, file)
    except OSError as error:
        raise typer.BadParameter(f"cannot read {file}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise typer.BadParameter(f"{file} is not UTF-8 text: {error.reason} at byte {error.start}") from None


def _text(opened: BinaryIO, file: str) -> str:
    raw = opened.read(MAX_FILE_BYTES + 1)
    if len(raw) > MAX_FILE_BYTES:
        raise typer.BadParameter(f"{file} is longer than {MAX_FILE_BYTES:,} bytes")
    return raw.decode("utf-8-sig")


def _parameter(name: str, kind: Any, option: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind, option])


def _flag(name: str, field: FieldInfo) -> Flag:
    plain = _without_none(field.annotation)
    many = get_origin(plain) in {list, tuple, set, frozenset}
    item = _without_none(get_args(plain)[0]) if many else plain
    nested = get_origin(item) is dict or (isinstance(item, type) and issubclass(item, BaseModel | dict))
    required = field.is_required()
    parts = [
        field.description,
        _limits(field),
        "Required." if required else _default(field),
        "May be repeated." if many else "",
    ]
    return Flag(name, many, item is str and _is_long(field), nested, " ".join(part for part in parts if part))


def _is_long(field: FieldInfo) -> bool:
    """Whether people would rather keep this text in a file: nothing keeps it short."""
    return all(
        (getattr(limit, "max_length", None) or 0) >= LONG or hasattr(limit, "min_length") for limit in field.metadata
    )


def _default(field: FieldInfo) -> str:
    value = field.get_default(call_default_factory=True)
    shown = value.value if isinstance(value, Enum) else value
    return f"Default: {shown}." if value or isinstance(value, int | float) else ""


def _limits(field: FieldInfo) -> str:
    """What the type allows, where a person can't guess it."""
    choices = getattr(_without_none(field.annotation), "__members__", None)
    values = [member.value for member in choices.values()] if choices else _literal(field.annotation)
    return f"One of {', '.join(map(str, values))}." if values else ""


def _literal(annotation: Any) -> tuple[Any, ...]:
    plain = _without_none(annotation)
    return get_args(plain) if get_origin(plain) is Literal else ()


def _without_none(annotation: Any) -> Any:
    if get_origin(annotation) in {Union, UnionType}:
        rest = [part for part in get_args(annotation) if part is not type(None)]
        return rest[0] if len(rest) == 1 else annotation
    return get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation
