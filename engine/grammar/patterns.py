"""How short a match of a regular expression can be, and by how much one more character can delay its end.

Reads the syntax that JSON schemas share: classes, groups, alternatives, repetition. Lookarounds count as their content;
other syntax is taken literally, which is never shorter. Lengths are bytes of UTF-8, thus bounds of tokens.
"""

from __future__ import annotations

import re
import string
from functools import lru_cache
from typing import NamedTuple

_CLASS = re.compile(r"\[\^?\]?(?:\\.|[^\]\\])*\]")
_ESCAPE = re.compile(r"\\(?:u\{[0-9A-Fa-f]+\}|u[0-9A-Fa-f]{4}|x[0-9A-Fa-f]{2}|[pP]\{[^}]*\}|.)", re.DOTALL)
_QUANTIFIER = re.compile(r"(?:([*+?])|\{(\d+)(,?)(\d*)\})[?+]?")
_GROUP = re.compile(r"\((?:\?(?:[:=!]|<[=!]|P?<\w+>))?")
_BOUNDARIES = frozenset({r"\b", r"\B", r"\A", r"\Z", r"\z"})
_ASCII = string.ascii_letters + string.digits + string.punctuation + " "
_MAX_CHARACTER = 4  # bytes


class Length(NamedTuple):
    """`least`: bytes of the shortest match. `rise`: how much longer one more character can make it at most, and
    `first`: how much longer the first character can.
    """

    least: int
    rise: int = 0
    first: int = 0


@lru_cache(256)
def pattern_length(pattern: str) -> Length:
    return _Reader(pattern).alternatives()


class _Reader:
    """Reads a pattern from left to right, once."""

    def __init__(self, pattern: str) -> None:
        self._pattern, self._at = pattern, 0

    def alternatives(self) -> Length:
        """Up to the end, or to the bracket that closes a group."""
        found = [self._sequence()]
        while self._next() == "|":
            self._at += 1
            found.append(self._sequence())
        if len(found) == 1:
            return found[0]
        least = min(each.least for each in found)
        first = max(each.least + each.first for each in found) - least
        return Length(least, max(first, *(each.rise for each in found)), first)

    def _sequence(self) -> Length:
        least = rise = first = 0
        while self._next() not in {"", "|", ")"}:
            item = self._item()
            if quantifier := _QUANTIFIER.match(self._pattern, self._at):
                self._at = quantifier.end()
                sign, low, comma, high = quantifier.groups()
                count = int(low) if low else int(sign == "+")
                if sign is None and (not comma or high == low):  # exactly `count` times
                    item = item._replace(least=item.least * count)
                else:
                    opening = item.least + item.first
                    item = Length(item.least * count, max(opening, item.rise), opening)
            first = max(first, item.first) if not least else first
            least, rise = least + item.least, max(rise, item.rise)
        return Length(least, rise, first)

    def _item(self) -> Length:
        if group := _GROUP.match(self._pattern, self._at):
            self._at = group.end()
            inside = self.alternatives()
            self._at += 1
            return inside
        found = _CLASS.match(self._pattern, self._at) or _ESCAPE.match(self._pattern, self._at)
        text = found[0] if found else self._pattern[self._at]
        self._at += len(text)
        if text in {"^", "$"} or text in _BOUNDARIES:
            return Length(0)
        if len(text) == 1:
            return Length(len(text.encode(errors="surrogatepass")))
        try:
            return Length(1 if re.search(text, _ASCII) else _MAX_CHARACTER)
        except re.error:  # an item that Python cannot read probably matches an ASCII character
            return Length(1)

    def _next(self) -> str:
        return self._pattern[self._at : self._at + 1]
