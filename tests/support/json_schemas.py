"""Schemas as kinds declare them, drawn at random, and whether a value matches one."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from thothy_ai.jobs import schema as fields


def pattern_of(field: Any) -> str:
    return str(_extra(field)["pattern"])


def _extra(field: Any) -> dict[str, Any]:
    schema: dict[str, Any] = {"minLength": 0, "maxLength": 0}
    field.json_schema_extra(schema)
    return schema


def text(pattern: str) -> dict[str, Any]:
    return {"type": "string", "pattern": pattern}


def record(**properties: Any) -> dict[str, Any]:
    """An object with all of these properties and no others."""
    return {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}


sizes = st.tuples(st.integers(1, 30), st.integers(0, 60)).map(lambda pair: (pair[0], sum(pair)))
strings = st.one_of(
    sizes.map(lambda size: text(fields.prose_pattern(*size))),
    sizes.map(lambda size: text(pattern_of(fields.title(size[0] + 3, size[1] + 3)))),
    st.builds(
        lambda least, more, size: text(pattern_of(fields.sentences(least, least + more, size))),
        st.integers(1, 2),
        st.integers(0, 3),
        st.integers(12, 60),
    ),
    st.sampled_from(
        ["^[а-я]{3,20}$", "^(?:ab|c{9}(?:d{5})?)(?:e{4}f)*$", "^[0-9]{2}(?:\\.[0-9]{4})?$", "^[^a]{1,9}$"]
    ).map(text),
    sizes.map(lambda size: {"type": "string", "minLength": size[0], "maxLength": size[1]}),
    st.just({"type": "string"}),
)
leaves = st.one_of(
    strings,
    st.lists(st.text('abcü. "', min_size=1, max_size=12), min_size=1, max_size=4, unique=True).map(
        lambda of: {"enum": of}
    ),
    st.sampled_from([{"const": "the same, always."}, {"type": "boolean"}, {"type": "null"}, {"type": "number"}]),
    st.builds(
        lambda least, more: {"type": "integer", "minimum": least, "maximum": least + more},
        st.integers(-20, 3000),
        st.integers(0, 5000),
    ),
)


def objects(children: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    names = st.sampled_from(["a", "body", "key_points", "ü", 'q"'])
    return st.dictionaries(names, children, min_size=1, max_size=4).map(
        lambda properties: {
            "type": "object",
            "properties": properties,
            "required": list(properties),
            "additionalProperties": False,
        }
    )


def arrays(children: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    counts = st.tuples(st.integers(0, 3), st.integers(0, 3))
    return st.builds(
        lambda items, count: {"type": "array", "items": items, "minItems": count[0], "maxItems": max(1, sum(count))},
        children,
        counts,
    )


schemas = objects(st.recursive(leaves, lambda children: objects(children) | arrays(children), max_leaves=6))


def matches(value: Any, schema: dict[str, Any]) -> bool:
    """Whether the value is one of the schema's, for the schemas drawn here."""
    if "enum" in schema or "const" in schema:
        return value in schema.get("enum", [schema.get("const")])
    return _MATCHES[schema["type"]](value, schema)


def _is_object(value: Any, schema: dict[str, Any]) -> bool:
    children = schema["properties"]
    return list(value) == list(children) and all(matches(value[name], children[name]) for name in children)


def _is_array(value: Any, schema: dict[str, Any]) -> bool:
    fits = schema["minItems"] <= len(value) <= schema["maxItems"]
    return fits and all(matches(one, schema["items"]) for one in value)


def _is_string(value: Any, schema: dict[str, Any]) -> bool:
    fits = schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", 10**9)
    return fits and re.search(schema.get("pattern", ""), value) is not None


_MATCHES: dict[str, Callable[[Any, dict[str, Any]], bool]] = {
    "object": _is_object,
    "array": _is_array,
    "string": _is_string,
    "integer": lambda value, schema: schema["minimum"] <= value <= schema["maximum"],
    "number": lambda value, _: isinstance(value, int | float),
    "boolean": lambda value, _: isinstance(value, bool),
    "null": lambda value, _: value is None,
}
