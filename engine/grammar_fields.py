"""What identifies a token mask inside a string: texts with equal keys have equal masks, whatever schema they are under.

What may follow in a text field depends on the characters that it still needs and may still have, on the bytes of an
unfinished character, on its character class, and on all that follows the field. A token has few characters: of more
than those, it does not matter how many more. Only fields of counted character classes are known, as `jobs/schema.py`
makes them, in objects whose keys are all required; any other text has no key.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from thothy_ai.engine.grammar_position import JsonPosition, Place
from thothy_ai.engine.grammar_slices import CLASS, NESTED
from thothy_ai.engine.grammar_tokens import JsonTokens

MaskKey = tuple[bytes, int, int, int, bytes]

_PATTERN = re.compile(rf"\^((?:{CLASS.pattern})*)({CLASS.pattern})\{{(\d{{1,9}}),(\d{{1,9}})\}}\$")
_OBJECT = frozenset({"type", "properties", "required", "additionalProperties"})
_ARRAY = frozenset({"type", "items", "minItems", "maxItems"})
_STRING = frozenset({"type", "pattern"})
_ESCAPED = b'"\\/bfnrt'
_BACKSLASH = 0x5C
_MAX_FIELDS = 1_024  # of a schema; an array's items are a field each


@dataclass(frozen=True, slots=True)
class TextField:
    """A string of `head` characters and `least` to `most` of a class. `same`: what follows it, and its classes."""

    same: bytes
    head: int
    least: int
    most: int
    horizon: int  # characters that no token has

    def key(self, characters: int, pending: bytes) -> MaskKey:
        """After so many characters and the first bytes of another one."""
        body, horizon = characters - self.head, self.horizon
        if body < 0:
            return (self.same, body, min(self.least, horizon), min(self.most, horizon), pending)
        needed, left = self.least - body, self.most - body
        return (self.same, 0, min(needed, horizon) if needed > 0 else 0, left if left < horizon else horizon, pending)


class TextFields:
    """The fields of one schema (JSON text). Used by the core's thread."""

    def __init__(self, schema: str, tokens: JsonTokens) -> None:
        self.tokens = tokens
        self._root = json.loads(schema)
        self._found: dict[Place, TextField | None] = {}

    def at(self, place: Place) -> TextField | None:
        """The field at this place; None if its masks have no keys."""
        if place not in self._found:
            if len(self._found) >= _MAX_FIELDS:
                return None
            self._found[place] = self._field(place)
        return self._found[place]

    def _field(self, place: Place) -> TextField | None:
        node, following = self._root, list[Any]()
        try:
            for entry in place:
                node, rest = _item(node, entry) if isinstance(entry, int) else _property(node, entry.decode())
                following.append(rest)
            return self._of_string(node, following)
        except (_UnknownError, TypeError, ValueError, KeyError, AttributeError):
            return None

    def _of_string(self, node: Mapping[str, Any], following: list[Any]) -> TextField | None:
        found = _PATTERN.fullmatch(node["pattern"])
        rest = json.dumps(following)
        if node.keys() != _STRING or node["type"] != "string" or found is None or '"$' in rest:
            return None
        head, classes = CLASS.findall(found[1]), found[1] + found[2]
        if any(NESTED.search(name, 1) for name in (*head, found[2])):
            return None
        same = blake2b(f"{classes}\n{rest}".encode(errors="surrogatepass"), digest_size=16).digest()
        return TextField(same, len(head), int(found[3]), int(found[4]), self.tokens.horizon)


class TextState:
    """Reads a text's tokens, up to the one that is to be masked."""

    def __init__(self, fields: TextFields) -> None:
        self._fields, self._tokens = fields, fields.tokens
        self._position = JsonPosition()
        self._read = 0  # tokens
        self._field: TextField | None = None  # that is open, and known
        self._characters = 0  # of the field
        self._pending = b""  # the beginning of a further one

    def key(self, taken: Sequence[int]) -> MaskKey | None:
        """Of the mask after these tokens, of which it has read some; None if no other text can share it."""
        for place in range(self._read, len(taken)):
            self._take(taken[place])
        self._read = len(taken)
        return None if self._field is None else self._field.key(self._characters, self._pending)

    def _take(self, token: int) -> None:
        whole = self._tokens.whole_characters[token]
        if whole and self._field is not None and not self._pending:
            self._characters += whole
            return
        data = self._tokens.table[token]
        if b'"' not in data:
            self._position.feed(data)
            self._go_on(data)
            return
        for at in range(len(data)):
            self._take_byte(data[at : at + 1])

    def _take_byte(self, byte: bytes) -> None:
        """One that may begin or end a string."""
        position = self._position
        inside = position.in_value_string
        position.feed(byte)
        if not position.in_value_string:
            self._field = None
        elif not inside:
            self._field, self._characters, self._pending = self._fields.at(position.place), 0, b""
        else:
            self._go_on(byte)

    def _go_on(self, data: bytes) -> None:
        """Count the characters of what an open field goes on with."""
        for at in range(len(data)):
            if self._field is not None:
                self._add(self._pending + data[at : at + 1])

    def _add(self, pending: bytes) -> None:
        """Count a character once all its bytes are there. After an escape by number, nothing is known."""
        whole = len(pending) == _length(pending[0])
        if whole and pending[0] == _BACKSLASH and pending[1] not in _ESCAPED:
            self._field = None
        self._characters += whole
        self._pending = b"" if whole else pending


class _UnknownError(Exception):
    """The schema has a keyword whose effect on what follows is not known."""


def _property(node: Mapping[str, Any], name: str) -> tuple[Any, Any]:
    """A property's schema, and those of the properties that must follow it."""
    properties = node["properties"]
    if node.keys() != _OBJECT or node["type"] != "object" or node["additionalProperties"] is not False:
        raise _UnknownError
    names = list(properties)
    if sorted(node["required"]) != sorted(names) or "\\" in name:
        raise _UnknownError
    return properties[name], [[later, properties[later]] for later in names[names.index(name) + 1 :]]


def _item(node: Mapping[str, Any], index: int) -> tuple[Any, Any]:
    """An item's schema; that of further ones, and how many must and may follow."""
    if not node.keys() <= _ARRAY or node["type"] != "array":
        raise _UnknownError
    most = node.get("maxItems")
    needed = max(0, node.get("minItems", 0) - index - 1)
    return node["items"], [needed, None if most is None else most - index - 1, node["items"]]


def _length(first: int) -> int:
    """Bytes of a character, or of an escape, that begins with this one."""
    if first == _BACKSLASH:
        return 2
    return 1 if first < 0xC0 else 2 if first < 0xE0 else 3 if first < 0xF0 else 4
