"""Indents compact JSON while a model writes it."""

from __future__ import annotations

INDENT = "  "
CLOSING = {"{": "}", "[": "]"}


class LiveJson:
    """Takes the text of JSON values in pieces. Each value begins on a new line, since a plan can make several calls.

    Other text passes through, without its spaces.
    """

    def __init__(self) -> None:
        self._depth = 0
        self._in_string = False
        self._escaped = False
        self._opened = False  # the last character opened an object or an array, which may turn out to be empty
        self._ended = False  # the last character ended a value

    def feed(self, text: str) -> str:
        return "".join(map(self._shown, text))

    def _shown(self, char: str) -> str:
        if self._in_string:
            ends = char == '"' and not self._escaped
            self._escaped = char == "\\" and not self._escaped
            self._in_string = not ends
            return char
        if char.isspace():
            return ""
        was_opened, self._opened = self._opened, char in CLOSING
        was_ended, self._ended = self._ended, char in CLOSING.values() and self._depth <= 1
        if char in CLOSING.values():
            self._depth = max(0, self._depth - 1)
            return char if was_opened else self._line() + char
        begins = self._line() if was_opened or was_ended else ""
        self._in_string = char == '"'
        self._depth += self._opened
        after = {",": self._line(), ":": " "}.get(char, "")
        return begins + char + after

    def _line(self) -> str:
        return "\n" + INDENT * self._depth
