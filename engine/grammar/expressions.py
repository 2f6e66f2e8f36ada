"""Regular expressions as trees of character classes, and the JSON encoding of characters."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cache, lru_cache

Ranges = tuple[tuple[int, int], ...]  # of code points, ascending

LAST = sys.maxunicode
_NOT_ASCII = 0x80
_ESCAPED = frozenset({0x22, 0x5C, 0x7F})
_CASES = 0x20  # between a small letter and its capital
_PREFERRED = [*map(ord, "a1etoin 023456789sbcdfghjklmpqrvuwxyzAEBCDFGHIJKLMNOPQRSTUVWXYZ.-_,")]


def escaped(text: str) -> bytes:
    """A string's content in compact JSON, as llguidance writes it."""
    if text.isascii() and text.isalnum():
        return text.encode()
    return "".join(map(_escaped, text)).encode(errors="surrogatepass")


@lru_cache(4_096)
def _escaped(sign: str) -> str:
    short = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\b": "\\b", "\f": "\\f"}
    return short.get(sign) or (f"\\u{ord(sign):04x}" if ord(sign) < 0x20 or sign == "\x7f" else sign)


class Expression:
    """`cost`: bytes of its shortest string in JSON. The end of a begun string is at most `longest` bytes away, and one
    more character delays it by at most `rise` bytes.
    """

    __slots__ = ("cost", "longest", "rise")
    cost: int
    longest: int
    rise: int


class Chars(Expression):
    """A class of characters. `best`: one of them that is short in JSON."""

    __slots__ = ("_ascii", "best", "ranges")

    def __init__(self, ranges: Ranges) -> None:
        self.ranges = ranges
        self._ascii = 0  # a bit per ASCII character, the most frequent queries
        for low, high in ranges:
            if low < _NOT_ASCII:
                self._ascii |= (1 << min(high + 1, _NOT_ASCII)) - (1 << low)
        usual = next((code for code in _PREFERRED if self.has(code)), None)
        if usual is not None and ranges == ((usual - _CASES, usual - _CASES), (usual, usual)):
            usual -= _CASES  # Z: fewer parsers of dates accept z
        first = (max(low, 0x20) for low, high in ranges if high >= 0x20)
        plain = next((code for code in first if code not in _ESCAPED), None)
        self.best = usual if usual is not None else plain if plain is not None else ranges[0][0] if ranges else 0
        self.cost = len(escaped(chr(self.best)))
        self.rise, self.longest = 0, self.cost

    def has(self, code: int) -> bool:
        if code < _NOT_ASCII:
            return bool(self._ascii >> code & 1)
        return any(low <= code <= high for low, high in self.ranges)

    def within(self, low: int, high: int) -> Chars | None:
        """The characters from `low` to `high`; None if there are none."""
        return self.and_(Chars(((low, high),)))

    def and_(self, other: Chars) -> Chars | None:
        both = tuple(
            (max(low, first), min(high, last))
            for low, high in self.ranges
            for first, last in other.ranges
            if max(low, first) <= min(high, last)
        )
        return chars_of(both) if both else None


class Row(Expression):
    """Expressions that follow one another, in order."""

    __match_args__ = __slots__ = ("parts",)

    def __init__(self, parts: tuple[Expression, ...]) -> None:
        self.parts = parts
        self.cost = self.longest = 0
        for part in reversed(parts):
            self.longest = max(self.longest, part.longest + self.cost)
            self.cost += part.cost
        self.rise = max([part.rise for part in parts], default=0)


class Either(Expression):
    """Any one of several expressions."""

    __match_args__ = __slots__ = ("choices",)

    def __init__(self, choices: tuple[Expression, ...]) -> None:
        self.choices = choices
        self.cost = least = min([choice.cost for choice in choices])
        self.longest = max([choice.longest for choice in choices])
        self.rise = max([max(0, choice.cost - least - 1) + choice.rise for choice in choices])


class Repeat(Expression):
    """An expression repeated `least` to `most` times; None: no maximum."""

    __match_args__ = __slots__ = ("item", "least", "most")

    def __init__(self, item: Expression, least: int, most: int | None) -> None:
        self.item, self.least, self.most = item, least, most
        self.cost = least * item.cost
        self.longest = item.longest + max(0, least - 1) * item.cost
        self.rise = item.rise + (max(0, item.cost - 1) if most is None or most > least else 0)


@cache
def chars_of(ranges: Ranges) -> Chars:
    return Chars(ranges)


ESCAPE = 5  # bytes to the end of an escaped control character, at most
ANY = chars_of(((0, 0xD7FF), (0xE000, LAST)))
ANY.rise, ANY.longest = ESCAPE, ANY.cost + ESCAPE
NO_NEWLINE = chars_of(((0, 9), (11, 0xD7FF), (0xE000, LAST)))
AROUND = Repeat(Chars(ANY.ranges), 0, None)  # what may surround a pattern found in a string


def words_in(classes: Sequence[Chars], words: Sequence[str]) -> str:
    """A string of these classes with few tokens, built greedily from the first fitting word of `words` each time."""
    found: list[str] = []
    at, count, fitting = 0, len(classes), dict[int, list[str]]()
    while at < count:
        kind, end = classes[at], at + 1
        while end < count and classes[end] is kind:
            end += 1
        if end - at > 1 and id(kind) not in fitting:
            fitting[id(kind)] = [word for word in words if all(kind.has(ord(sign)) for sign in word)]
        while at < end:
            word = next((word for word in fitting.get(id(kind), ()) if len(word) <= end - at), chr(kind.best))
            found.append(word)
            at += len(word)
    return "".join(found)
