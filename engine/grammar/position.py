"""The position in a compact JSON text that is read piece by piece: inside a string or not, and in which field."""

from __future__ import annotations

import re
from copy import copy

_STRING_END = re.compile(rb'["\\]')
_LAST = 8
Place = tuple[bytes | int, ...]  # keys and indices from the root to the last begun value


class JsonPosition:
    """Feed it the bytes of a text, in pieces of any size."""

    def __init__(self) -> None:
        self._path: list[bytes | int | None] = []  # the last begun entry of each open container
        self._key: bytearray | None = None  # being read
        self._wants_key = False
        self._escaped = False
        self._value_began = False
        self.in_string = False
        self.last = b""  # the text's last bytes, eight at most

    def copy(self) -> JsonPosition:
        """An independent copy of the position."""
        other = copy(self)
        other._path = [*self._path]
        other._key = None if self._key is None else bytearray(self._key)
        return other

    @property
    def place(self) -> Place:
        """The field of the value that began last."""
        return tuple(entry for entry in self._path if entry is not None)

    @property
    def in_value_string(self) -> bool:
        """In a string that is not a key."""
        return self.in_string and self._key is None

    @property
    def in_array(self) -> bool:
        """In an array, at whatever depth."""
        return any(isinstance(entry, int) for entry in self._path)

    def feed(self, data: bytes) -> None:
        at = 0
        while at < len(data):
            at = self._in_string(data, at) if self.in_string else self._outside(data[at : at + 1], at)
        self.last = (self.last + data)[-_LAST:]

    def _in_string(self, data: bytes, at: int) -> int:
        if self._escaped:
            self._escaped = False
            return self._keep(data, at, at + 1)
        found = _STRING_END.search(data, at)
        end = len(data) if found is None else found.start()
        self._keep(data, at, end)
        if found is None:
            return end
        if found[0] == b'"':
            self.in_string = False
            if self._key is not None:
                self._path[-1], self._key = bytes(self._key), None
        else:
            self._escaped = True
            self._keep(data, end, end + 1)
        return end + 1

    def _keep(self, data: bytes, start: int, end: int) -> int:
        if self._key is not None:
            self._key += data[start:end]
        return end

    def _outside(self, sign: bytes, at: int) -> int:
        match sign:
            case b'"':
                self.in_string = True
                if self._wants_key:
                    self._key, self._wants_key = bytearray(), False
                else:
                    self._begin_value()
            case b"{" | b"[":
                self._begin_value()
                self._path.append(None)
                self._wants_key, self._value_began = sign == b"{", False
            case b"}" | b"]":
                self._path.pop()
                self._wants_key, self._value_began = False, True
            case b",":
                in_array = bool(self._path) and isinstance(self._path[-1], int)
                self._wants_key, self._value_began = not in_array, False
            case b":":
                self._value_began = True
            case _:
                self._begin_value()
        return at + 1

    def _begin_value(self) -> None:
        """Begin another entry if in an array; in an object, the key has already begun it."""
        if not self._value_began and self._path and not isinstance(self._path[-1], bytes):
            self._path[-1] = 0 if self._path[-1] is None else int(self._path[-1]) + 1
        self._value_began = True
