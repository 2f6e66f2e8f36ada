"""Strings of a schema: the continuations of a begun string, and its shortest end."""

from __future__ import annotations

import json
import re
import sys
from codecs import getincrementaldecoder
from collections.abc import Sequence
from heapq import heappop, heappush, nsmallest
from itertools import count, product
from typing import Any, NamedTuple

from thothy_ai.engine.grammar.expressions import ANY, ESCAPE, LAST, Chars, escaped, words_in
from thothy_ai.engine.grammar.matching import Options, Pattern, Stand, StringRule
from thothy_ai.engine.grammar.tokens import JsonTokens

_MAX_SEARCHED = 3_000  # characters to try for a string under several rules
_MEASURED = 4  # shortest options by bytes, of which the one with the fewest tokens is chosen
_MAX_MEMORY = 4_096
_NOT_FAR = 128  # bytes
_ESCAPES = [
    *(b"\\" + bytes([sign]) for sign in b'n"\\trfb'),
    *(b"\\u%04x" % code for code in (*range(1, 0x20), 0x7F, 0)),
]
_WHOLE = re.compile(rb"(?:\\u[0-9a-fA-F]{4}|\\[^u]|[^\\])*", re.DOTALL)
_FIRST_OF = {2: 0x80, 3: 0x800, 4: 0x10000}  # the first code point of each length in bytes
_Path = Any  # a class and the path before it, or None
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


class ContentState(NamedTuple):
    """A string's state in each of its rules, and the bytes of an unfinished character. `read`: a key so far."""

    stands: tuple[Stand, ...]
    pending: bytes = b""
    read: str = ""


class Text:
    """Strings that all `rules` allow; if they are keys, none that is `taken`, and none that a key pattern matches."""

    def __init__(
        self,
        rules: Sequence[StringRule],
        tokens: JsonTokens,
        *,
        taken: frozenset[str] | None = None,
        claimed: Sequence[Pattern] = (),
    ) -> None:
        self._rules, self._tokens, self._taken, self._claimed = rules, tokens, taken, claimed
        self._ends: dict[ContentState, bytes | None] = {}
        self.start = ContentState(tuple(rule.start for rule in rules))
        self.rise = max((rule.rise for rule in rules), default=ESCAPE)
        self.longest = sum(rule.longest for rule in rules) if rules else ESCAPE
        self.listed = any(isinstance(rule, Options) for rule in rules)
        # Following a pattern costs 10 to 100 us per character, so the search for an end that is never far can wait.
        self.may_wait = bool(rules) and taken is None and not self.listed and self.longest <= _NOT_FAR

    def read(self, state: ContentState, data: bytes) -> ContentState | None:
        """The state after more bytes, without a quotation mark that ends the string; None if they are not allowed."""
        if not self._rules and self._taken is None and not state.pending and b"\\" not in data and data.isascii():
            return state
        stands, read = state.stands, state.read
        data = state.pending + data
        found = _WHOLE.match(data)  # the characters that are complete
        whole = found[0] if found else b""
        decoder = getincrementaldecoder("utf-8")()
        text = decoder.decode(whole)
        if "\\" in text:
            text = json.loads(f'"{text}"', strict=False)
        pending = decoder.getstate()[0] + data[len(whole) :]
        for sign in text:
            stands = tuple(rule.step(stand, ord(sign)) for rule, stand in zip(self._rules, stands, strict=True))
            if not all(stands):
                return None
        return ContentState(stands, pending, read + text if self._taken is not None else "")

    def accepts(self, state: ContentState) -> bool:
        pairs = zip(self._rules, state.stands, strict=True)
        return not state.pending and all(rule.accepts(stand) for rule, stand in pairs) and not self._refuses(state.read)

    def end(self, state: ContentState) -> bytes | None:
        """The rest of the shortest string, without its quotation mark; None if none is found."""
        if state not in self._ends:
            if len(self._ends) > _MAX_MEMORY:
                self._ends.clear()
            self._ends[state] = self._found(state)
        return self._ends[state]

    def _found(self, state: ContentState) -> bytes | None:
        if state.pending:
            classes = self._rules[0].following(state.stands[0]) if self._rules else [ANY]
            for data in _completions(state.pending, classes):
                after = self.read(state, data)
                if after is not None and not after.pending and (end := self.end(after)) is not None:
                    return data + end
            return None
        if self._taken is not None and not self._rules:
            signs = "", *_LETTERS
            ends = (first + second for first, second in product(signs, signs))
            return next((end.encode() for end in ends if not self._refuses(state.read + end)), None)
        rules, words = [*zip(self._rules, state.stands, strict=True)], self._tokens.words_of_text
        if len(rules) == 1:
            options = rules[0][0].strings(rules[0][1], words)
        elif all(rule.accepts(stand) for rule, stand in rules):
            options = [""]
        else:
            found = _search(self._rules, state.stands)
            options = [] if found is None else [words_in(found, words)]
        if self._taken is not None:
            options = [each for each in options if not self._refuses(state.read + each)]
        texts = nsmallest(_MEASURED, map(escaped, options), key=len)
        return min(texts, key=lambda text: len(self._tokens.divided(text)), default=None)

    def key_besides(self, used: frozenset[str]) -> bytes:
        """A key that is not among `used`."""
        if self._rules:
            return self.end(self.start) or b""
        names = (first + second for first, second in product(("", *_LETTERS), _LETTERS))
        return next((name.encode() for name in names if name not in used and not self._refuses(name)), b"")

    def _refuses(self, key: str) -> bool:
        if self._taken is None:
            return False
        return key in self._taken or any(matches(pattern, key) for pattern in self._claimed)


def shortest_string(rules: Sequence[StringRule], tries: int) -> str | None:
    """One of the shortest strings that all rules allow; None if none is found after `tries` characters."""
    if len(rules) == 1:
        found = rules[0].strings(rules[0].start, ())[0]
    else:
        path = _search(rules, tuple(rule.start for rule in rules), tries)
        found = "" if path is None else words_in(path, ())
    return found if all(matches(rule, found) for rule in rules) else None


def _search(rules: Sequence[StringRule], start: tuple[Stand, ...], tries: int = sys.maxsize) -> list[Chars] | None:
    """The classes of a shortest string that all rules allow (A*, guided by each rule's distance)."""
    number, seen = count(), {start}
    heap: list[tuple[int, int, int, tuple[Stand, ...], _Path]] = [(0, next(number), 0, start, None)]
    while heap and len(seen) < _MAX_SEARCHED:
        _, _, cost, stands, path = heappop(heap)
        pairs = [*zip(rules, stands, strict=True)]
        if all(rule.accepts(stand) for rule, stand in pairs):
            found: list[Chars] = []
            while path is not None:
                last, path = path
                found.append(last)
            return found[::-1]
        for classes in product(*(rule.following(stand) for rule, stand in pairs)):
            tries -= 1
            if tries < 0:
                return None
            common: Chars | None = classes[0]
            for other in classes[1:]:
                common = None if common is None else common.and_(other)
            if common is None:
                continue
            after = tuple(rule.step(stand, common.best) for rule, stand in pairs)
            if all(after) and after not in seen:
                seen.add(after)
                far = max(rule.nearest(stand) for rule, stand in zip(rules, after, strict=True))
                total = cost + common.cost
                heappush(heap, (total + far, next(number), total, after, (common, path)))
    return None


def matches(rule: StringRule, text: str) -> bool:
    """Whether the rule allows a whole string."""
    stand = rule.start
    for sign in text:
        stand = rule.step(stand, ord(sign))
        if not stand:
            return False
    return rule.accepts(stand)


def _completions(pending: bytes, classes: Sequence[Chars]) -> list[bytes]:
    """Byte sequences that can complete a character of one of the classes, the likeliest first."""
    if pending.startswith(b"\\"):
        return [sign[len(pending) :] for sign in _ESCAPES if sign.startswith(pending.lower())]
    length = 2 if pending[0] < 0xE0 else 3 if pending[0] < 0xF0 else 4
    bits = pending[0] & (0x7F >> length)
    for byte in pending[1:]:
        bits = bits << 6 | byte & 0x3F
    missing = 6 * (length - len(pending))
    low, high = max(bits << missing, _FIRST_OF[length]), min((bits + 1 << missing) - 1, LAST)
    found = (each.within(low, high) for each in classes)
    codes = dict.fromkeys(each.ranges[0][0] for each in found if each is not None)
    return [chr(code).encode()[len(pending) :] for code in codes]
