"""The parameters of a tool whose arguments a model writes one by one, as pairs of a name and a value."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from thothy_ai.engine.api.errors import InvalidRequestError
from thothy_ai.engine.text.answer_form import PairForm

_TOLD = frozenset(("title", "description", "default", "examples", "$comment", "deprecated"))  # which bind nothing
_TREE = frozenset(("type", "properties", "required", "additionalProperties", "$schema", "$id"))
_DEFINED = ("$defs", "definitions")
_MAX_REFERENCES = 16  # one to the next


@dataclass(frozen=True, slots=True)
class Parameter:
    """`schema` binds the value, as JSON. Without it, it is one of `texts`, which stand for JSON texts, or any text of
    at most `most` characters, without quotes.
    """

    name: str
    required: bool
    schema: str | None = None
    texts: Mapping[str, str] = field(default_factory=dict)
    most: int | None = None


@dataclass(frozen=True, slots=True)
class CalledTool:
    """A tool that may be called. Without `parameters`, its arguments are one JSON text."""

    name: str
    parameters: tuple[Parameter, ...] | None = None


def parameters_of(schema: Mapping[str, Any], place: str, pairs: PairForm) -> tuple[Parameter, ...]:
    """In the schema's order. InvalidRequestError for a schema that binds several of them together."""
    defined = {name: schema[name] for name in _DEFINED if name in schema}
    tree = _referred(schema, place)
    for keyword in tree:
        if keyword not in _TREE | _TOLD and keyword not in _DEFINED:
            says = f"{place}.{keyword}: this model writes arguments one by one, and no keyword can bind them together"
            raise InvalidRequestError(says, place)
    required, values = tree.get("required", []), tree.get("properties", {})
    if not isinstance(values, dict) or not isinstance(required, list) or not all(isinstance(n, str) for n in required):
        raise InvalidRequestError(f"{place}: expected properties by name, and a list of those required", place)
    values = values | {name: True for name in required if name not in values}
    return tuple(_parameter(name, value, defined, pairs, required=name in required) for name, value in values.items())


def _referred(schema: Mapping[str, Any], place: str) -> Mapping[str, Any]:
    """The definition that a schema refers to as a whole, if it does."""
    found: Any = schema
    for _ in range(_MAX_REFERENCES):
        if not isinstance(found, Mapping):
            break
        if "$ref" not in found:
            return found
        root, *steps = str(found["$ref"]).split("/")
        found = schema if root == "#" else None
        for step in steps:
            found = found.get(step) if isinstance(found, Mapping) else None
    raise InvalidRequestError(f"{place}.$ref: there is no {schema['$ref']!r}", place)


def _parameter(name: str, value: Any, defined: Mapping[str, Any], pairs: PairForm, *, required: bool) -> Parameter:  # noqa: ANN401  a schema
    own = {} if value is True else value
    binding = {key: each for key, each in own.items() if key not in _TOLD} if isinstance(own, Mapping) else {}
    words = {"boolean": {"True": "true", "False": "false"}, "null": {"None": "null"}}
    if not pairs.bare and binding.keys() == {"type"} and str(binding["type"]) in words:
        return Parameter(name, required, texts=words[binding["type"]])
    if pairs.bare and (texts := _texts(binding, pairs)):
        return Parameter(name, required, texts=texts)
    if pairs.bare and binding.get("type") == "string" and binding.keys() <= {"type", "maxLength"}:
        return Parameter(name, required, most=binding.get("maxLength"))
    schema = {**own, **defined} if isinstance(own, Mapping) else own
    return Parameter(name, required, json.dumps(schema, ensure_ascii=False))


def _texts(binding: Mapping[str, Any], pairs: PairForm) -> dict[str, str]:
    """The strings that alone are allowed, if they can be written without quotes."""
    if not binding.keys() <= {"type", "enum", "const"} or binding.get("type", "string") != "string":
        return {}
    listed = [binding["const"]] if "const" in binding else binding.get("enum", ())
    plain = all(isinstance(each, str) and each and pairs.after_text.strip() not in each for each in listed)
    return {each: json.dumps(each, ensure_ascii=False) for each in listed} if plain else {}
