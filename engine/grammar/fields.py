"""The key of a text's state under its schema. Texts with equal keys can continue with the same bytes, and thus the same
tokens, whatever their schemas. Forced bytes are an exception: llguidance allows only the first of the tokens that they
are divided into, and the division also depends on the text's last token.

The continuations of a text field depend on how many characters it still needs and can still have, on the bytes of an
unfinished character, on its character class, and on everything after the field. Since a token has few characters, a
larger room makes no difference. Known fields are counted character classes, as `jobs/schema.py` makes them, in objects
whose keys are all required. Between known fields, the bytes since the last one identify the state: keys, punctuation,
numbers and strings of enumerations. After any other string, the key is unknown until the next known field.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from thothy_ai.engine.grammar.position import JsonPosition, Place
from thothy_ai.engine.grammar.slices import CLASS, NESTED
from thothy_ai.engine.grammar.tokens import JsonTokens

StateKey = tuple[bytes, int, int, int, bytes]

_PATTERN = re.compile(rf"\^((?:{CLASS.pattern})*)({CLASS.pattern})\{{(\d{{1,9}}),(\d{{1,9}})\}}\$")
_OBJECT = frozenset({"type", "properties", "required", "additionalProperties"})
_ARRAY = frozenset({"type", "items", "minItems", "maxItems"})
_STRING = frozenset({"type", "pattern"})
_ESCAPED = b'"\\/bfnrt'
_BACKSLASH = 0x5C
_BYTES = bytes(  # length of a character or an escape, by its first byte
    2 if first == _BACKSLASH else 1 if first < 0xC0 else 2 if first < 0xE0 else 3 if first < 0xF0 else 4
    for first in range(256)
)
_MAX_FIELDS = 1_024  # per schema; each item of an array is a field
_MAX_BETWEEN = 512  # bytes between two fields that make a key
_QUOTE = b'"'
_BODY = 0  # second entry of a key in a field after its head; negative within the head
_BETWEEN = 1  # second entry of a key between fields


def room_of(key: StateKey) -> int:
    """How many more characters a field may have, if it may also end and no character is unfinished; otherwise 0.

    In such a state, less room only forbids tokens with more characters.
    """
    _, part, needed, left, pending = key
    return left if part == _BODY and not needed and not pending else 0


class _UnknownError(Exception):
    """The schema has a keyword whose effect on what follows is not known."""


_NOT_KNOWN = (_UnknownError, TypeError, ValueError, KeyError, AttributeError)


@dataclass(frozen=True, slots=True)
class TextField:
    """A string of `head` characters, then `least` to `most` characters of a class.

    `same`: a digest of its classes and of all that follows it. `known`: a cache of frequent results of `state`.
    """

    same: bytes
    head: int
    least: int
    most: int
    horizon: int  # more characters than any token has
    known: dict[int, tuple[StateKey, int]] = field(default_factory=dict, compare=False, repr=False)

    def state(self, characters: int) -> tuple[StateKey, int]:
        """The key after this many whole characters, and the number up to which it holds. For the core's thread."""
        found = self.known.get(characters)
        if found is None:
            found = self.key(characters, b""), self.steady(characters)
            if found[1] == characters:  # true only near the field's ends
                self.known[characters] = found
        return found

    def key(self, characters: int, pending: bytes) -> StateKey:
        """The key after this many characters and the first bytes of another one."""
        body, horizon = characters - self.head, self.horizon
        if body < 0:
            return (self.same, body, min(self.least, horizon), min(self.most, horizon), pending)
        needed, left = self.least - body, self.most - body
        return (self.same, 0, min(needed, horizon) if needed > 0 else 0, left if left < horizon else horizon, pending)

    def steady(self, characters: int) -> int:
        """Up to how many characters the key stays the same as after this many whole ones."""
        needed, left = self.head + self.least - characters, self.head + self.most - characters
        if characters < self.head or left < self.horizon or 0 < needed < self.horizon:
            return characters
        return characters + (min(needed, left) if needed > 0 else left) - self.horizon


class TextFields:
    """The fields of one schema (JSON text); `spelling` identifies the separators and escapes of its texts. Used by the
    core's thread.
    """

    def __init__(self, schema: str, tokens: JsonTokens, spelling: str) -> None:
        self.tokens, self._spelling = tokens, spelling
        self.digest = _digest(f"{spelling}\n{schema}")
        self._root = json.loads(schema)
        self._found: dict[Place, TextField | None] = {}
        self._listed: dict[Place, bool] = {}

    def at(self, place: Place) -> TextField | None:
        """The field at this place; None if it is not known."""
        if place not in self._found:
            if len(self._found) >= _MAX_FIELDS:
                return None
            try:
                self._found[place] = self._field(place)
            except _NOT_KNOWN:
                self._found[place] = None
        return self._found[place]

    def lists(self, place: Place) -> bool:
        """Whether the strings of this place are enumerated."""
        if place not in self._listed:
            if len(self._listed) >= _MAX_FIELDS:
                return False
            try:
                node, _ = self._resolved(place)
                options = node["enum"] if "enum" in node else [node["const"]]
                self._listed[place] = any(isinstance(option, str) for option in options)
            except _NOT_KNOWN:
                self._listed[place] = False
        return self._listed[place]

    def _resolved(self, place: Place) -> tuple[Any, list[Any]]:
        """A place's schema, and what must or can follow it: later properties, and further items of arrays."""
        node, following = self._root, list[Any]()
        for entry in place:
            if isinstance(entry, int):
                if not node.keys() <= _ARRAY or node["type"] != "array":
                    raise _UnknownError
                most, needed = node.get("maxItems"), max(0, node.get("minItems", 0) - entry - 1)
                node = node["items"]
                following.append([needed, None if most is None else most - entry - 1, node])
                continue
            name, properties = entry.decode(), node["properties"]
            if node.keys() != _OBJECT or node["type"] != "object" or node["additionalProperties"] is not False:
                raise _UnknownError
            names = list(properties)
            if sorted(node["required"]) != sorted(names) or "\\" in name:
                raise _UnknownError
            following.append([[later, properties[later]] for later in names[names.index(name) + 1 :]])
            node = properties[name]
        return node, following

    def _field(self, place: Place) -> TextField | None:
        node, following = self._resolved(place)
        found = _PATTERN.fullmatch(node["pattern"])
        rest = json.dumps(following)
        if node.keys() != _STRING or node["type"] != "string" or found is None or '"$' in rest:
            return None
        head, classes = CLASS.findall(found[1]), found[1] + found[2]
        if any(NESTED.search(name, 1) for name in (*head, found[2])):
            return None
        same = _digest(f"{self._spelling}\n{classes}\n{rest}")
        return TextField(same, len(head), int(found[3]), int(found[4]), self.tokens.horizon)


def _digest(text: str) -> bytes:
    return blake2b(text.encode(errors="surrogatepass"), digest_size=16).digest()


class TextState:
    """Reads a text's tokens up to the next one to be chosen."""

    def __init__(self, fields: TextFields) -> None:
        self._fields, self._tokens = fields, fields.tokens
        self._position = JsonPosition()
        self._shares = False  # shares its position with other states until it must read
        self._read = 0  # tokens
        self._field: TextField | None = None  # the open field, if known
        self._characters = 0  # of the field
        self._pending = b""  # first bytes of the next character
        self._after: bytes | None = fields.digest  # digest of what follows the last field; None after an unknown one
        self._between = b""  # bytes since the last field
        self._key, self._steady = self._current()  # after the tokens that were read

    def copy(self) -> TextState:
        """An independent copy of the state."""
        other: TextState = object.__new__(TextState)
        self._shares = True
        other.__dict__ |= self.__dict__  # in a third of the time that `copy` takes
        return other

    def key(self, taken: Sequence[int]) -> StateKey | None:
        """The key after these tokens, some of which it has read; None if it is not known."""
        if self._read == len(taken):
            return self._key
        if self._shares:
            self._position, self._shares = self._position.copy(), False
        for token in taken[self._read :]:
            whole = self._tokens.whole_characters[token]
            if whole and self._field is not None and not self._pending:
                self._characters += whole
                continue
            for number, data in enumerate(self._tokens.table[token].split(_QUOTE)):
                if number:
                    self._take_quote()
                if data:
                    self._position.feed(data)
                    self._record(data)
        self._read = len(taken)
        self._key, self._steady = self._current()
        return self._key

    def extend_field(self, taken: Sequence[int], token: int) -> bool:
        """Read a token after these, if it only adds characters to an open field that is known."""
        whole, open_field = self._tokens.whole_characters[token], self._field
        if not whole or open_field is None or self._pending or self._read != len(taken):
            return False
        self._characters += whole
        self._read += 1
        if self._characters > self._steady:
            self._key, self._steady = open_field.state(self._characters)
        return True

    def forced_key(self, taken: Sequence[int]) -> StateKey | None:
        """The key for forced tokens; None if unknown, or where a one-character class can force several tokens."""
        key = self.key(taken)
        return None if self._field is not None and key and key[2] >= self._field.horizon else key

    def _current(self) -> tuple[StateKey | None, int]:
        """The key, and up to how many characters of an open field it stays the same."""
        if self._field is not None:
            if self._pending:
                return self._field.key(self._characters, self._pending), 0
            return self._field.state(self._characters)
        if self._after is None or len(self._between) > _MAX_BETWEEN:
            return None, 0
        return (self._after, _BETWEEN, 0, 0, self._between), 0

    def _take_quote(self) -> None:
        """Read a quotation mark, which may begin or end a string."""
        position = self._position
        inside = position.in_value_string
        position.feed(_QUOTE)
        if inside and not position.in_value_string and self._field is not None:
            self._after, self._between, self._field = self._field.same, b"", None
        elif position.in_value_string and not inside:
            place = position.place
            self._field, self._characters, self._pending = self._fields.at(place), 0, b""
            if self._field is None and not self._fields.lists(place):
                self._after = None
            self._between += _QUOTE
        else:
            self._record(_QUOTE)

    def _record(self, data: bytes) -> None:
        """Count the characters that are added to an open field; keep the bytes between fields."""
        if self._field is None:
            self._between = (self._between + data)[: _MAX_BETWEEN + 1]
            return
        for at in range(len(data)):
            if self._field is None:
                return
            pending = self._pending + data[at : at + 1]
            whole = len(pending) == _BYTES[pending[0]]
            if whole and pending[0] == _BACKSLASH and pending[1] not in _ESCAPED:  # by number
                self._field = self._after = None
            self._characters += whole
            self._pending = b"" if whole else pending
