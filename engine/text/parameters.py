"""The parameters of a tool, for models that write arguments as pairs of a name and a value."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from thothy_ai.engine.api.errors import InvalidRequestError
from thothy_ai.engine.grammar.bare import BareSearch
from thothy_ai.engine.text.answer_form import PairForm

_DEFINED = ("$defs", "definitions")
_ROOT = "$root"  # definition, in an argument's schema, of the schema of all arguments
_OF_ANY = frozenset(("allOf", "anyOf", "oneOf", "not", "if", "enum", "const", "$dynamicRef", "$recursiveRef"))
_OF_OBJECTS = frozenset(
    (
        "minProperties", "maxProperties", "patternProperties", "propertyNames", "unevaluatedProperties",
        "dependentRequired", "dependentSchemas", "dependencies",
    )
)  # fmt: skip
_BOUNDS = frozenset(("minLength", "maxLength", "pattern", "format"))
_OF_STRINGS = _OF_ANY | {"type", "$ref", *_BOUNDS}
_NAMED = ("properties", "patternProperties", "dependentSchemas", *_DEFINED)  # schemas by names, which can be keywords
_VALUES = ("enum", "const", "default", "examples")
# A reference that leads elsewhere than to a definition.
_TO_ROOT = re.compile(r'"\$ref": "#(?!/(?:\$defs|definitions)/)')
_MAX_REFERENCES = 16  # in a chain


@dataclass(frozen=True, slots=True)
class Parameter:
    """The value follows `schema`, as JSON. Without a schema, it is one of `texts`, each of which stands for a JSON
    text, or an unquoted string that satisfies the schema `strings`. If `nullable`, the text `null` stands for null.
    """

    name: str
    required: bool
    schema: str | None = None
    texts: Mapping[str, str] = field(default_factory=dict)
    strings: str = "{}"
    nullable: bool = False


@dataclass(frozen=True, slots=True)
class CalledTool:
    """A tool that can be called. Without `parameters`, its arguments are one JSON text."""

    name: str
    parameters: tuple[Parameter, ...] | None = None


def parameters_of(schema: Mapping[str, Any], place: str, pairs: PairForm, search: BareSearch) -> tuple[Parameter, ...]:
    """The parameters in the schema's order. InvalidRequestError for a schema that relates several of them."""
    tree = _referred(schema, schema)
    if tree is None:
        raise InvalidRequestError(f"{place}.$ref: there is no {schema['$ref']!r}", place)
    for keyword in tree:
        if keyword in _OF_ANY | _OF_OBJECTS:
            says = f"{place}.{keyword}: this model writes arguments one by one, and no keyword can bind them together"
            raise InvalidRequestError(says, place)
    required, values = tree.get("required", []), tree.get("properties", {})
    if not isinstance(values, dict) or not isinstance(required, list) or not all(isinstance(n, str) for n in required):
        raise InvalidRequestError(f"{place}: expected properties by name, and a list of those required", place)
    values = values | {name: True for name in required if name not in values}
    try:
        return tuple(
            _parameter(name, value, schema, pairs, search, required=name in required) for name, value in values.items()
        )
    except RecursionError as error:
        raise InvalidRequestError(f"{place}: it is nested too deeply", place) from error


def _referred(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Follow references of a whole schema; None if one leads nowhere."""
    found: Any = schema
    for _ in range(_MAX_REFERENCES):
        if not isinstance(found, Mapping):
            break
        if "$ref" not in found:
            return found
        start, *steps = str(found["$ref"]).split("/")
        found = root if start == "#" else None
        for step in steps:
            name = unquote(step).replace("~1", "/").replace("~0", "~")
            found = found.get(name) if isinstance(found, Mapping) else None
    return None


def _parameter(
    name: str,
    value: Any,  # noqa: ANN401  a schema
    root: Mapping[str, Any],
    pairs: PairForm,
    search: BareSearch,
    *,
    required: bool,
) -> Parameter:
    """A value that is not known to be a string is bound as JSON; the grammar then refuses malformed keywords."""
    binding, nullable = _binding({} if value is True else value, root)
    words = {"boolean": {"True": "true", "False": "false"}, "null": {"None": "null"}}
    if not pairs.bare and not nullable and binding.keys() == {"type"} and str(binding["type"]) in words:
        return Parameter(name, required, texts=words[binding["type"]])
    if pairs.bare and (texts := _texts(binding, pairs, search, nullable=nullable)):
        return Parameter(name, required, texts=texts)
    if pairs.bare and binding.get("type") == "string" and _bounds_strings(binding):
        strings = json.dumps({key: each for key, each in binding.items() if key != "type"})
        found = None if nullable and pairs.quote else search.strings(strings)  # what is in quotes of its own is no null
        if found is not None and pairs.after_text.strip() not in found.shortest:
            return Parameter(name, required, strings=strings, nullable=nullable)
    return Parameter(name, required, _whole({} if value is True else value, root))


def _binding(schema: Any, root: Mapping[str, Any]) -> tuple[dict[str, Any], bool]:  # noqa: ANN401  a schema
    """The keywords that can bind a string, of a schema or the one it refers to, and whether it also allows null."""
    if not isinstance(schema, Mapping):
        return {}, False
    binding = {key: each for key, each in schema.items() if key in _OF_STRINGS}
    if binding.keys() == {"$ref"} and (found := _referred(schema, root)) is not None:
        binding = {key: each for key, each in found.items() if key in _OF_STRINGS}
    kinds = binding.get("type")
    if isinstance(kinds, list) and len(kinds) == 2 and "null" in kinds and binding.keys().isdisjoint(("enum", "const")):
        return binding | {"type": kinds[kinds[0] == "null"]}, True
    for several in ("anyOf", "oneOf"):
        choices = binding.get(several)
        if binding.keys() == {several} and isinstance(choices, list) and len(choices) == 2:
            others = [_binding(each, root)[0] for each in choices if each != {"type": "null"}]
            return (others[0], True) if len(others) == 1 else (binding, False)
    return binding, False


def _bounds_strings(binding: Mapping[str, Any]) -> bool:
    """Whether it has only keywords that bound strings, whose pattern and format are texts."""
    are_texts = all(isinstance(binding.get(key, ""), str) for key in ("pattern", "format"))
    return are_texts and binding.keys() <= {"type", *_BOUNDS}


def _texts(binding: Mapping[str, Any], pairs: PairForm, search: BareSearch, *, nullable: bool) -> dict[str, str]:
    """The JSON texts of enumerated strings, and of null, by their form without quotes; empty if they cannot be written
    or distinguished in that form.
    """
    listed, kinds = [binding["const"]] if "const" in binding else binding.get("enum"), binding.get("type", ["string"])
    kinds = kinds if isinstance(kinds, list) else [kinds]
    bounds = {key: each for key, each in binding.items() if key not in {"type", "enum", "const"}}
    if not isinstance(listed, list) or not _bounds_strings(bounds):
        return {}
    strings = [each for each in listed if isinstance(each, str)]
    null = nullable or (None in listed and ("null" in kinds or "type" not in binding))
    others = any(each is not None and not isinstance(each, str) for each in listed)
    if others or "string" not in kinds or (null and (pairs.quote or "null" in strings)):
        return {}
    if bounds:
        strings = [*search.allowed(json.dumps(bounds), strings)]
    if not strings or any(pairs.after_text.strip() in each for each in strings):
        return {}
    return {each: json.dumps(each, ensure_ascii=False) for each in strings} | ({"null": "null"} if null else {})


def _whole(schema: Any, root: Mapping[str, Any]) -> str:  # noqa: ANN401  a schema
    """The schema of one argument as JSON text, including all definitions that it can refer to."""
    defined = {name: root[name] for name in _DEFINED if name in root}
    text = json.dumps({**schema, **defined} if isinstance(schema, Mapping) else schema, ensure_ascii=False)
    if not _TO_ROOT.search(text):
        return text
    moved = _moved({**schema, **defined})
    moved["$defs"] = {**moved.get("$defs", {}), _ROOT: _moved({key: root[key] for key in root.keys() - {*_DEFINED}})}
    return json.dumps(moved, ensure_ascii=False)


def _moved(schema: Any) -> Any:  # noqa: ANN401  a schema
    """The schema with references to the root that lead to its definition."""
    if isinstance(schema, list):
        return [_moved(each) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    moved = dict[str, Any]()
    for key, each in schema.items():
        if key == "$ref" and _TO_ROOT.match(f'"$ref": "{each}'):
            moved[key] = f"#/$defs/{_ROOT}{str(each)[1:]}"
        elif key in _NAMED and isinstance(each, Mapping):
            moved[key] = {name: _moved(of) for name, of in each.items()}
        else:
            moved[key] = each if key in _VALUES else _moved(each)
    return moved
