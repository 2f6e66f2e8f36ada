"""Deterministic valid instances of JSON schemas: the null engine's answers.

Strings are plain English, in whole sentences if bounds and pattern allow it. Enums and choices take their first value,
arrays have the fewest items, and numbers the smallest value.
"""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from thothy_ai.engine.api import ToolCall, ToolChoice, Tools
from thothy_ai.engine.api.errors import GrammarError

Schema = Mapping[str, Any]

_SENTENCES = (
    "Small bakeries are turning to slow fermentation, and their customers notice the difference.",
    "The longer rest gives each loaf a deeper flavour and keeps it fresh for days.",
    "Patience pays off.",
    "Owners say that the change asks for time rather than for new machines.",
    "Several of them now publish their recipes and teach evening classes.",
    "Bread is back.",
    "What began as an experiment has become a habit that whole streets enjoy.",
    "Local farms supply most of the grain, which shortens the way from field to oven.",
)
_OTHERS = ("plain-words", "plain", "Plain", "PLAIN", "7", "2026", "2026-01-31", "12:30", "en", "EN", "a1", "#aabbcc")
_MAX_DEPTH = 64
_MAX_WORDS = 400


@lru_cache(maxsize=256)
def instance_text(schema: str) -> str:
    """Compact JSON text that matches the schema (JSON text); GrammarError if the schema cannot be used."""
    try:
        parsed = json.loads(schema)
        if not isinstance(parsed, dict):
            raise GrammarError("not a JSON schema: it must be an object")
        value = _Maker(parsed).make(parsed)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise GrammarError(f"not a usable JSON schema: {error}") from error
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def prose(words: int) -> str:
    """Running text of this many words."""
    return " ".join(itertools.islice(itertools.cycle(" ".join(_SENTENCES).split()), words))


def calls_of(tools: Tools) -> tuple[ToolCall, ...]:
    """A call if one is required, otherwise none; GrammarError if its schema cannot be used."""
    if not tools.only and tools.choice is not ToolChoice.REQUIRED:
        return ()
    functions = [json.loads(each)["function"] for each in tools.definitions]
    called = next(each for each in functions if tools.only in ("", each["name"]))
    return (ToolCall(called["name"], instance_text(json.dumps(called.get("parameters") or {"type": "object"}))),)


class _Maker:
    """Makes one value; each of its strings begins with a different sentence."""

    def __init__(self, root: Schema) -> None:
        self._root = root
        self._starts = itertools.cycle(range(len(_SENTENCES)))

    def make(self, schema: Schema, depth: int = 0) -> object:
        if depth > _MAX_DEPTH:
            raise GrammarError("not a usable JSON schema: it nests without end")
        schema = self._resolved(schema)
        if "const" in schema:
            return schema["const"]
        if "enum" in schema:
            return schema["enum"][0]
        for choice in ("anyOf", "oneOf"):
            if choice in schema:
                others = {key: schema[key] for key in schema if key != choice}
                return self.make(others | dict(self._resolved(schema[choice][0])), depth + 1)
        return self._typed(schema, depth)

    def _typed(self, schema: Schema, depth: int) -> object:
        kind = schema.get("type", "object" if "properties" in schema else "string")
        match kind[0] if isinstance(kind, list) else kind:
            case "object":
                properties = schema.get("properties", {})
                wanted = schema.get("required", properties)
                return {name: self.make(properties[name], depth + 1) for name in properties if name in wanted}
            case "array":
                first = schema.get("prefixItems", [])
                count = max(schema.get("minItems", 0), len(first))
                rest = itertools.repeat(schema.get("items", {}), count - len(first))
                return [self.make(item, depth + 1) for item in (*first, *rest)]
            case "string":
                return self._string(schema)
            case "integer" | "number" as number:
                return _number(schema, whole=number == "integer")
            case "boolean":
                return True
            case "null":
                return None
            case other:
                raise GrammarError(f"not a JSON schema: unknown type {other!r}")

    def _string(self, schema: Schema) -> str:
        shortest, longest = schema.get("minLength", 0), schema.get("maxLength", math.inf)
        pattern = _compiled(schema.get("pattern", ""))
        texts = _texts(next(self._starts))
        fitting = (text for text in texts if shortest <= len(text) <= longest and pattern.search(text))
        text = next(fitting, None)
        if text is None:
            raise GrammarError(f"the null engine has no text that matches {json.dumps(schema)}")
        return text

    def _resolved(self, schema: Schema) -> Schema:
        """Follow `$ref` within the document and merge `allOf`."""
        if isinstance(reference := schema.get("$ref"), str):
            target: Any = self._root
            for step in reference.removeprefix("#").strip("/").split("/"):
                target = target[step] if step else target
            return self._resolved({**target, **{key: schema[key] for key in schema if key != "$ref"}})
        merged = dict(schema)
        for part in merged.pop("allOf", ()):
            merged |= self._resolved(part)
        return merged


def _texts(start: int) -> Iterator[str]:
    """Candidate strings: whole sentences from `start` on, their beginnings without a full stop, then other forms."""
    rotated = [*_SENTENCES[start:], *_SENTENCES[:start]]
    yield from rotated
    for count in range(2, len(rotated) + 1):
        yield " ".join(rotated[:count])
    words = list(itertools.islice(itertools.cycle(" ".join(rotated).split()), _MAX_WORDS))
    for count in range(6, _MAX_WORDS):
        yield " ".join(words[:count]).rstrip(",.")
    for count in range(5, 0, -1):
        yield " ".join(words[:count]).rstrip(",.")
        yield from (sentence.split()[-1].rstrip(".") for sentence in rotated)
    yield from _OTHERS
    yield from (prose(_MAX_WORDS)[:length] for length in range(_MAX_WORDS))
    yield from ("x" * length for length in range(_MAX_WORDS))


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> re.Pattern[str]:
    """The pattern, or one that accepts everything if Python does not support its syntax (`\\p{L}`)."""
    try:
        return re.compile(pattern)
    except re.error:
        return re.compile("")


def _number(schema: Schema, *, whole: bool) -> float:
    least: float = schema.get("minimum", schema.get("exclusiveMinimum", 0))
    most: float = schema.get("maximum", schema.get("exclusiveMaximum", math.inf))
    step: float = schema.get("multipleOf", 1)
    value: float = math.ceil(min(least, most) / step) * step
    if value <= schema.get("exclusiveMinimum", -math.inf):
        value += step
    if not whole and value > most:
        return (least + most) / 2
    return int(value) if whole else value
