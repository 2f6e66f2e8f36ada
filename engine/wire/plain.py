"""Dataclasses as the plain values that msgpack carries, and back. Nothing is taken for what it is not.

msgpack has what Python confuses: a boolean is no number, a text is no sequence of texts, bytes are no text. A number
that is not finite is none. Types come from the dataclasses' annotations.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from enum import StrEnum
from functools import cache
from types import UnionType
from typing import TYPE_CHECKING, Any, TypeVar, Union, get_args, get_origin, get_type_hints

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")
Fields = Mapping[str, Any]
Read = Callable[[object], object]


def fields_of(value: DataclassInstance) -> dict[str, Any]:
    """A dataclass's fields by name; their values are not converted."""
    return {field.name: getattr(value, field.name) for field in fields(value)}


def read(kind: type[T], given: object, **ready: object) -> T:
    """A `kind` from its fields by name, and from those that are `ready`; TypeError or ValueError says what is wrong.

    A name that this side does not know comes from a newer peer, and is ignored. A missing one takes its default.
    """
    if not isinstance(given, dict):
        raise TypeError(f"{_shown(given)} is no map")
    found = {name: _named(name, read_one, given[name]) for name, read_one in _readers(kind).items() if name in given}
    return kind(**(found | ready))


def read_as(hint: Any, value: object) -> Any:  # noqa: ANN401  any type's
    """A value of the annotated type; TypeError or ValueError says what is wrong with it."""
    return _reader(hint)(value)


def _named(name: str, read_one: Read, value: object) -> object:
    try:
        return read_one(value)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{name}: {error}") from error


@cache
def _readers(kind: type) -> dict[str, Read]:
    hints = get_type_hints(kind)
    return {field.name: _reader(hints[field.name]) for field in fields(kind)}


@cache
def _reader(hint: Any) -> Read:  # noqa: ANN401  any type's
    """Reads values of one type."""
    if get_origin(hint) in {Union, UnionType}:
        return _optional(get_args(hint)[0])
    if get_origin(hint) is tuple:
        return _sequence(get_args(hint)[0])
    if hint is float:
        return _number
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return lambda value: hint(str(_exact(str, value)))
    if isinstance(hint, type) and is_dataclass(hint):
        return lambda value: read(hint, value)
    return lambda value: _exact(hint, value)


def _exact(kind: type, value: object) -> object:
    if type(value) is not kind:
        raise TypeError(f"{_shown(value)} has the wrong type, {kind.__name__} is wanted")
    return value


def _number(value: object) -> float:
    if type(value) not in {int, float} or not math.isfinite(value):  # type: ignore[arg-type]
        raise TypeError(f"{_shown(value)} is no number")
    return float(value)  # type: ignore[arg-type]


def _optional(hint: Any) -> Read:  # noqa: ANN401  any type's
    reader = _reader(hint)
    return lambda value: None if value is None else reader(value)


def _sequence(hint: Any) -> Read:  # noqa: ANN401  any type's
    reader = _reader(hint)

    def read_all(values: object) -> tuple[object, ...]:
        if type(values) not in {list, tuple}:
            raise TypeError(f"{_shown(values)} is no list")
        if hint in {int, str} and set(map(type, values)) <= {hint}:  # type: ignore[call-overload]  # at C's speed
            return tuple(values)  # type: ignore[arg-type]
        return tuple(map(reader, values))  # type: ignore[call-overload]

    return read_all


def _shown(value: object) -> str:
    return f"{value!r:.80}" if type(value) in {str, bytes, int, float, bool, type(None)} else type(value).__name__
