"""Reads regular expressions, in the syntax that JSON schemas share with llguidance: classes, groups, alternatives,
repetition. PatternError where an expression uses other syntax.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from functools import cache, lru_cache

from thothy_ai.engine.grammar.expressions import (
    AROUND,
    LAST,
    NO_NEWLINE,
    Chars,
    Either,
    Expression,
    Ranges,
    Repeat,
    Row,
    chars_of,
)
from thothy_ai.engine.grammar.matching import Pattern, PatternError
from thothy_ai.engine.grammar.slices import CLASS

_MAX_DEPTH = 200  # of groups
_MAX_CACHED = 500  # characters of an alternative
_CLASS_NAMES: dict[str, Ranges] = {
    "d": ((48, 57),),
    "w": ((48, 57), (65, 90), (95, 95), (97, 122)),
    "s": (
        *((9, 13), (32, 32), (0x85, 0x85), (0xA0, 0xA0), (0x1680, 0x1680), (0x2000, 0x200A), (0x2028, 0x2029)),
        *((0x202F, 0x202F), (0x205F, 0x205F), (0x3000, 0x3000)),
    ),
}
_NAMED_CLASS = re.compile(r"\[:(\^?)(\w+):\]")
_NAMED_CLASSES: dict[str, Ranges] = {
    "alnum": ((48, 57), (65, 90), (97, 122)),
    "alpha": ((65, 90), (97, 122)),
    "digit": ((48, 57),),
    "lower": ((97, 122),),
    "punct": ((33, 47), (58, 64), (91, 96), (123, 126)),
    "space": ((9, 13), (32, 32)),
    "upper": ((65, 90),),
    "word": ((48, 57), (65, 90), (95, 95), (97, 122)),
    "xdigit": ((48, 57), (65, 70), (97, 102)),
}
_LAST_FOLDED = 0x24F
_OTHER_CASES = [
    (code, ord(other))
    for code in range(_LAST_FOLDED + 1)
    if len(other := chr(code).swapcase()) == 1 and other != chr(code)
]
_CONTROLS = {"n": 10, "r": 13, "t": 9, "f": 12, "v": 11, "a": 7, "0": 0}
_QUANTIFIER = re.compile(r"(?:([*+?])|\{(\d+)(,?)(\d*)\})[?+]?")
_GROUP = re.compile(r"\((?:\?(?::|s:|P?<\w+>))?")
_NUMBERED = re.compile(r"[uxU]\{([0-9A-Fa-f]+)\}|u([0-9A-Fa-f]{4})|x([0-9A-Fa-f]{2})|U([0-9A-Fa-f]{8})")
_FLAT = r"\[(?!\^?\])\^?(?:\\.|[^\]\\\[]){1,500}\]|\\.|[^\\\[()|]"  # a class, an escape, or another sign
_ALTERNATIVE = re.compile(rf"(?:{_FLAT}|\((?:{_FLAT}|\|)*+\))++(?=[|)])", re.DOTALL)  # with groups, but none in these
_PROPERTY = re.compile(r"([pP])(?:\{\^?(\w+)\}|(\w))")


def least_bytes(pattern: str) -> int:
    """Bytes of the shortest string that contains a match of the pattern; 0 if the pattern is not understood."""
    try:
        rule = Pattern(searched(pattern))
    except PatternError:
        return 0
    return rule.nearest(rule.start)


@lru_cache(256)
def searched(pattern: str) -> Expression:
    """The expression of whole strings that contain a match of the pattern, as llguidance interprets it."""
    return _Reader(pattern).whole()


class _Reader:
    """Reads a pattern from left to right, once."""

    def __init__(self, pattern: str, *, folds: bool = False, depth: int = 0) -> None:
        self._pattern, self._folds = pattern, folds
        self._at, self._depth = 0, depth

    def whole(self) -> Expression:
        if self._pattern.startswith("(?i)"):
            self._at, self._folds = 4, True
        found = [self._anchored()]
        while self._next() == "|":
            self._at += 1
            found.append(self._anchored())
        if self._next():
            raise PatternError("a bracket is closed that was not opened")
        return found[0] if len(found) == 1 else Either(tuple(found))

    def _anchored(self) -> Expression:
        """An alternative of the whole pattern, with arbitrary text around it unless it is anchored."""
        left, right = self._next() != "^", True
        self._at += not left
        node = self.sequence()
        if self._next() == "$":
            right = False
            self._at += 1
        return Row((*(AROUND,) * left, node, *(AROUND,) * right))

    def _alternatives(self) -> Expression:
        found = [self._alternative()]
        while self._next() == "|":
            self._at += 1
            found.append(self._alternative())
        return found[0] if len(found) == 1 else Either(tuple(found))

    def _alternative(self) -> Expression:
        """An alternative of a group. They are cached, since patterns of one kind of schema differ in few of them."""
        flat = _ALTERNATIVE.match(self._pattern, self._at, self._at + _MAX_CACHED)
        if flat is None:
            return self.sequence()
        self._at = flat.end()
        return _alternative_of(flat[0], self._folds, self._depth)

    def sequence(self) -> Expression:
        parts: list[Expression] = []
        while (sign := self._next()) not in {"", "|", ")"}:
            if sign == "$" and not self._depth and self._pattern[self._at + 1 : self._at + 2] in {"", "|"}:
                break
            item = self._item()
            while quantifier := _QUANTIFIER.match(self._pattern, self._at):
                self._at = quantifier.end()
                kind, low, comma, high = quantifier.groups()
                least = int(low) if low else int(kind == "+")
                most = 1 if kind == "?" else None if kind else least if not comma else int(high) if high else None
                item = Repeat(item, least, most)
            parts.append(item)
        return parts[0] if len(parts) == 1 else Row(tuple(parts))

    def _item(self) -> Expression:
        sign = self._next()
        if sign == "(":
            group = _GROUP.match(self._pattern, self._at)
            assert group is not None
            self._at, self._depth = group.end(), self._depth + 1
            if self._next() == "?" or self._depth > _MAX_DEPTH:
                raise PatternError("groups of this sort are not understood")
            inside = self._alternatives()
            self._depth -= 1
            if self._next() != ")":
                raise PatternError("')' is missing")
            self._at += 1
            return inside
        if sign == "[":
            return self._folded(self._class())
        self._at += 1
        if sign == ".":
            return NO_NEWLINE
        if sign == "\\":
            return self._folded(self._escape())
        if sign in "^$*+?":
            raise PatternError(f"{sign!r} is not understood here")
        return self._folded(((ord(sign), ord(sign)),))

    def _folded(self, ranges: Ranges) -> Chars:
        """A class, with the other case of its letters if the pattern ignores case."""
        if not self._folds:
            return chars_of(ranges)
        swapped = [other for low, high in ranges for code, other in _OTHER_CASES if low <= code <= high]
        return chars_of(_joined([*ranges, *zip(swapped, swapped, strict=True)]))

    def _escape(self) -> Ranges:
        """Read the rest of an escape, after its backslash."""
        if found := _NUMBERED.match(self._pattern, self._at):
            self._at = found.end()
            code = int(next(filter(None, found.groups())), 16)
            return ((code, code),)
        if found := _PROPERTY.match(self._pattern, self._at):
            self._at = found.end()
            ranges = _category(found[2] or found[3])
            return _inverted(ranges) if (found[1] == "P") != ("^" in found[0]) else ranges
        sign = self._next()
        self._at += 1
        if sign.lower() in _CLASS_NAMES:
            ranges = _CLASS_NAMES[sign.lower()]
            return ranges if sign.islower() else _inverted(ranges)
        if sign in _CONTROLS:
            return ((_CONTROLS[sign], _CONTROLS[sign]),)
        if not sign or sign.isalnum():
            raise PatternError(f"\\{sign} is not understood")
        return ((ord(sign), ord(sign)),)

    def _class(self) -> Ranges:
        """Read a class in brackets. Classes are cached, since those of a pattern are often long and equal."""
        plain = CLASS.match(self._pattern, self._at)
        if plain is None or "[" in plain[0][1:] or plain[0] == "[^]":
            return self.read_class()
        self._at = plain.end()
        return _class_of(plain[0])

    def read_class(self) -> Ranges:
        self._at += 1
        inverted = self._next() == "^"
        self._at += inverted
        found: list[tuple[int, int]] = []
        first, both = True, None
        while (sign := self._next()) != "]" or first:
            if not sign or self._pattern.startswith(("--", "~~"), self._at):
                raise PatternError("a class of this sort is not understood")
            first = False
            if self._pattern.startswith("&&", self._at):
                self._at += 2
                both, found = _common(_joined(found), both), []
                continue
            if named := _NAMED_CLASS.match(self._pattern, self._at):
                self._at = named.end()
                ranges = _NAMED_CLASSES[named[2]]
                found += _inverted(ranges) if named[1] else ranges
                continue
            if sign == "[":
                found += self._class()
                continue
            low = self._member()
            if self._next() == "-" and self._pattern[self._at + 1 : self._at + 2] not in {"]", ""} and len(low) == 1:
                self._at += 1
                high = self._member()
                found.append((low[0][0], high[-1][1]))
            else:
                found += low
        self._at += 1
        ranges = _common(_joined(found), both)
        return _inverted(ranges) if inverted else ranges

    def _member(self) -> Ranges:
        sign = self._next()
        self._at += 1
        if sign == "\\":
            if self._next() == "b":
                self._at += 1
                return ((8, 8),)
            return self._escape()
        return ((ord(sign), ord(sign)),)

    def _next(self) -> str:
        return self._pattern[self._at : self._at + 1]


@lru_cache(1_024)
def _alternative_of(text: str, folds: bool, depth: int) -> Expression:
    return _Reader(text, folds=folds, depth=depth).sequence()


@lru_cache(1_024)
def _class_of(text: str) -> Ranges:
    return _Reader(text).read_class()


def _common(ranges: Ranges, others: Ranges | None) -> Ranges:
    if others is None:
        return ranges
    common = chars_of(ranges).and_(chars_of(others))
    return () if common is None else common.ranges


def _joined(ranges: Iterable[tuple[int, int]]) -> Ranges:
    found: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if found and low <= found[-1][1] + 1:
            found[-1] = found[-1][0], max(found[-1][1], high)
        else:
            found.append((low, high))
    return tuple(found)


def _inverted(ranges: Ranges) -> Ranges:
    found, at = list[tuple[int, int]](), 0
    for low, high in ranges:
        if at < low:
            found.append((at, low - 1))
        at = high + 1
    if at <= LAST:
        found.append((at, LAST))
    return tuple((low, high) for low, high in found if not 0xD800 <= low <= high <= 0xDFFF)


@cache
def _category(name: str) -> Ranges:
    """The characters of a Unicode category, such as L or Lu."""
    if not re.fullmatch(r"[LMNPSZC][a-z]?", name):
        raise PatternError(f"\\p{{{name}}} is not understood")
    found: list[tuple[int, int]] = []
    for code in range(LAST + 1):
        if unicodedata.category(chr(code)).startswith(name):
            if found and found[-1][1] == code - 1:
                found[-1] = found[-1][0], code
            else:
                found.append((code, code))
    return tuple(found)
