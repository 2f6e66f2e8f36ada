"""Checks an output against its JSON schema, independently of the grammar that enforced it.

It knows the subset of JSON Schema that artifact classes generate.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

_TYPES: dict[str, Callable[[Any], bool]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "integer": lambda value: type(value) is int,
    "number": lambda value: type(value) in (int, float),
    "boolean": lambda value: type(value) is bool,
    "null": lambda value: value is None,
}
_LIMITS: dict[str, Callable[[Any, Any], bool]] = {
    "const": lambda value, limit: bool(value == limit),
    "enum": lambda value, limit: value in limit,
    "minimum": lambda value, limit: bool(value >= limit),
    "maximum": lambda value, limit: bool(value <= limit),
    "exclusiveMinimum": lambda value, limit: bool(value > limit),
    "exclusiveMaximum": lambda value, limit: bool(value < limit),
    "minLength": lambda value, limit: len(value) >= limit,
    "maxLength": lambda value, limit: len(value) <= limit,
    "minItems": lambda value, limit: len(value) >= limit,
    "maxItems": lambda value, limit: len(value) <= limit,
    "pattern": lambda value, limit: re.fullmatch(limit, value) is not None,  # generated patterns are anchored
}


def flaw(schema: str, text: str) -> str | None:
    """The first violation of the schema (JSON text) in an output; None if the output is valid."""
    try:
        value = json.loads(text)
    except ValueError as error:
        return f"not JSON: {error}"
    whole = json.loads(schema)
    return next(_flaws(whole, value, "output", whole), None)


def _flaws(schema: dict[str, Any], value: Any, where: str, whole: dict[str, Any]) -> Iterator[str]:
    if "$ref" in schema:
        found: Any = whole
        for part in schema["$ref"].removeprefix("#/").split("/"):
            found = found[part]
        yield from _flaws(found, value, where, whole)
    if "anyOf" in schema and all(any(_flaws(way, value, where, whole)) for way in schema["anyOf"]):
        yield f"{where}: none of the alternatives"
    if "type" in schema and not _TYPES[schema["type"]](value):
        yield f"{where}: not of type {schema['type']}"
        return
    yield from (
        f"{where}: {name}" for name, holds in _LIMITS.items() if name in schema and not holds(value, schema[name])
    )
    if isinstance(value, dict):
        yield from _object_flaws(schema, value, where, whole)
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _flaws(schema.get("items", {}), item, f"{where}.{index}", whole)


def _object_flaws(schema: dict[str, Any], value: dict[str, Any], where: str, whole: dict[str, Any]) -> Iterator[str]:
    properties = schema.get("properties", {})
    yield from (f"{where}: {name} is missing" for name in schema.get("required", ()) if name not in value)
    for name, item in value.items():
        if name in properties:
            yield from _flaws(properties[name], item, f"{where}.{name}", whole)
        elif schema.get("additionalProperties") is False:
            yield f"{where}: {name} is not expected"
