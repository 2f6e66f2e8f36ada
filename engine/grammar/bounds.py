"""How long the shortest instance of a JSON schema is, and by how much one token can delay the shortest end.

Counted in bytes of compact JSON, thus upper bounds of tokens. The analysis is conservative: an unknown keyword makes a
schema not `plain`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from thothy_ai.engine.grammar.patterns import pattern_length

_MAX_DEPTH = 32
_ESCAPE_BYTES = 12  # of an escaped surrogate pair, which a text must complete
_FORMAT_BYTES = 40  # of a date-time, an email address or the like
_NUMBER_BYTES = 3  # a sign, a point or an exponent needs a digit
_LIMITS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
_DESCRIBING = ("title", "description", "default", "examples", "$defs", "definitions")
_KNOWN = frozenset(
    {"type", "properties", "required", "additionalProperties", "items", "minItems", "maxItems", "enum", "const"}
    | {"pattern", "minLength", "maxLength", *_LIMITS, *_DESCRIBING}
)


class Bounds(NamedTuple):
    """`least`: bytes of a short instance. A token adds at most `opening` bytes to the rest by opening something, and
    `inside` bytes within a string or a number. `plain`: a text's place in the instance determines what must follow.
    """

    least: int
    opening: int = 0
    inside: int = 0
    plain: bool = True

    @classmethod
    def sequence(cls, parts: Iterable[Bounds]) -> Bounds:
        found = list(parts)
        return cls(
            sum(part.least for part in found),
            max((part.opening for part in found), default=0),
            max((part.inside for part in found), default=0),
            all(part.plain for part in found),
        )

    def optional(self) -> Bounds:
        return Bounds(0, self.least + self.opening, self.inside, self.plain)

    def vague(self) -> Bounds:
        return self._replace(plain=False)


_ANYTHING = Bounds(4, _FORMAT_BYTES, _FORMAT_BYTES, plain=False)


def bounds_of(schema: str) -> Bounds:
    """The bounds of a JSON schema (JSON text); nothing is known of one whose keywords have impossible values."""
    root = json.loads(schema)
    try:
        return _Analysis(root).of(root)
    except (TypeError, ValueError, AttributeError):
        return _ANYTHING


class _Analysis:
    def __init__(self, root: Any) -> None:  # noqa: ANN401  any JSON value
        self._root = root
        self._open: set[str] = set()  # references that are being followed
        self._found: dict[str, Bounds] = {}  # of references that led to no recursion

    def of(self, node: Any, depth: int = 0) -> Bounds:  # noqa: ANN401  any JSON value
        if not isinstance(node, Mapping) or depth > _MAX_DEPTH:
            return _ANYTHING
        reference = node.get("$ref")
        if not isinstance(reference, str):
            found = self._known(node, depth)
            return found if _KNOWN.issuperset(node) else found.vague()
        if reference in self._open:
            return _ANYTHING  # recursive
        if reference not in self._found:
            target: Any = self._root
            try:
                for step in reference.removeprefix("#").strip("/").split("/"):
                    target = target[step] if step else target
            except (LookupError, TypeError):
                target = None
            self._open.add(reference)
            self._found[reference] = self.of(target, depth + 1)
            self._open.discard(reference)
        return self._found[reference]

    def _known(self, node: Mapping[str, Any], depth: int) -> Bounds:
        if "const" in node:
            return Bounds(len(_json(node["const"])))
        if "enum" in node:
            sizes = [len(_json(value)) for value in node["enum"]]
            return Bounds(min(sizes), 0, max(sizes) - min(sizes))
        for name in ("anyOf", "oneOf"):
            if name in node:
                choices = [self.of(choice, depth + 1) for choice in node[name]]
                opening = max(choice.least + choice.opening for choice in choices)
                inside = max(choice.inside for choice in choices)
                return Bounds(min(choice.least for choice in choices), opening, max(opening, inside), plain=False)
        return self._typed(node, depth)

    def _typed(self, node: Mapping[str, Any], depth: int) -> Bounds:
        match node.get("type"):
            case "object":
                required = frozenset(node.get("required", ()))
                parts = [Bounds(2)]
                for name, child in node.get("properties", {}).items():
                    entry = Bounds.sequence([Bounds(len(_json(name)) + 2), self.of(child, depth + 1)])
                    parts.append(entry if name in required else entry.optional().vague())
                if node.get("additionalProperties", True) is not False:
                    parts.append(_ANYTHING.optional())
                return Bounds.sequence(parts)
            case "array":
                item = Bounds.sequence([Bounds(1), self.of(node.get("items"), depth + 1)])
                count = node.get("minItems", 0)
                more = [item.optional()] if node.get("maxItems", count + 1) > count else []
                return Bounds.sequence([Bounds(2 + count * item.least), item._replace(least=0), *more])
            case "string":
                least, inside = node.get("minLength", 0), _ESCAPE_BYTES
                if isinstance(pattern := node.get("pattern"), str):
                    length = pattern_length(pattern)
                    least, inside = max(length.least, least), length.rise
                elif "format" in node:
                    least = inside = _FORMAT_BYTES
                return Bounds(2 + least, 0, inside)
            case "integer" | "number":
                digits = max(len(_json(node[name])) for name in _LIMITS if name in node) if node.keys() & _LIMITS else 1
                return Bounds(digits, 0, digits + _NUMBER_BYTES)
            case "boolean" | "null":
                return Bounds(5)
        return _ANYTHING


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode(errors="surrogatepass")
