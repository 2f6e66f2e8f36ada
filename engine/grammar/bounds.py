"""What a JSON schema lets a text open that it need not: by how much one token can put off the shortest end.

Counted in bytes of compact JSON, thus upper bounds of tokens. The analysis is conservative: a keyword that it does not
know makes a schema one that is not `plain`.
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
    """`least`: bytes of a short instance. `opening`: what may be opened adds so much to it, `inside` of a string or a
    number so much. `plain`: where a text stands in the instance says what must follow.
    """

    least: int
    opening: int = 0
    inside: int = 0
    plain: bool = True

    @classmethod
    def together(cls, parts: Iterable[Bounds]) -> Bounds:
        """One after the other."""
        found = list(parts)
        return cls(
            sum(part.least for part in found),
            max((part.opening for part in found), default=0),
            max((part.inside for part in found), default=0),
            all(part.plain for part in found),
        )

    def optional(self) -> Bounds:
        """It need not be there."""
        return Bounds(0, self.least + self.opening, self.inside, self.plain)

    def vague(self) -> Bounds:
        """It says less than where it stands."""
        return self._replace(plain=False)


_ANYTHING = Bounds(4, _FORMAT_BYTES, _FORMAT_BYTES, plain=False)


def bounds_of(schema: str) -> Bounds:
    """Of a JSON schema (JSON text). Of one whose keywords have impossible values, nothing is known."""
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
        if isinstance(reference := node.get("$ref"), str):
            return self._followed(reference, depth)
        found = self._known(node, depth)
        return found if _KNOWN.issuperset(node) else found.vague()

    def _followed(self, reference: str, depth: int) -> Bounds:
        if reference in self._open:
            return _ANYTHING  # recursive
        if reference not in self._found:
            self._open.add(reference)
            self._found[reference] = self.of(self._resolved(reference), depth + 1)
            self._open.discard(reference)
        return self._found[reference]

    def _known(self, node: Mapping[str, Any], depth: int) -> Bounds:
        if "const" in node:
            return Bounds(len(_json(node["const"])))
        if "enum" in node:
            sizes = [len(_json(value)) for value in node["enum"]]
            return Bounds(min(sizes), 0, max(sizes) - min(sizes))
        for choice in ("anyOf", "oneOf"):
            if choice in node:
                return _either([self.of(one, depth + 1) for one in node[choice]])
        return self._typed(node, depth)

    def _typed(self, node: Mapping[str, Any], depth: int) -> Bounds:
        match node.get("type"):
            case "object":
                return self._object(node, depth)
            case "array":
                return self._array(node, depth)
            case "string":
                return _string(node)
            case "integer" | "number":
                digits = max(len(_json(node[name])) for name in _LIMITS if name in node) if node.keys() & _LIMITS else 1
                return Bounds(digits, 0, digits + _NUMBER_BYTES)
            case "boolean" | "null":
                return Bounds(5)
        return _ANYTHING

    def _object(self, node: Mapping[str, Any], depth: int) -> Bounds:
        required = frozenset(node.get("required", ()))
        parts = [Bounds(2)]
        for name, child in node.get("properties", {}).items():
            entry = Bounds.together([Bounds(len(_json(name)) + 2), self.of(child, depth + 1)])
            parts.append(entry if name in required else entry.optional().vague())
        if node.get("additionalProperties", True) is not False:
            parts.append(_ANYTHING.optional())
        return Bounds.together(parts)

    def _array(self, node: Mapping[str, Any], depth: int) -> Bounds:
        item = Bounds.together([Bounds(1), self.of(node.get("items"), depth + 1)])
        count = node.get("minItems", 0)
        more = [item.optional()] if node.get("maxItems", count + 1) > count else []
        return Bounds.together([Bounds(2 + count * item.least), item._replace(least=0), *more])

    def _resolved(self, reference: str) -> object:
        target: Any = self._root
        try:
            for step in reference.removeprefix("#").strip("/").split("/"):
                target = target[step] if step else target
        except (LookupError, TypeError):
            return None
        return target


def _either(choices: list[Bounds]) -> Bounds:
    most = max(choice.least + choice.opening for choice in choices)
    inside = max(choice.inside for choice in choices)
    return Bounds(min(choice.least for choice in choices), most, max(most, inside), plain=False)


def _string(node: Mapping[str, Any]) -> Bounds:
    if isinstance(pattern := node.get("pattern"), str):
        length = pattern_length(pattern)
        return Bounds(2 + max(length.least, node.get("minLength", 0)), 0, length.rise)
    if "format" in node:
        return Bounds(2 + _FORMAT_BYTES, 0, _FORMAT_BYTES)
    return Bounds(2 + node.get("minLength", 0), 0, _ESCAPE_BYTES)


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode(errors="surrogatepass")
