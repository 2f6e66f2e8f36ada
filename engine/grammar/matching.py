"""Tracks a string through a rule that it must match, and finds its soonest end.

In a regular expression, a string can be at several `Spot`s at once. Each is a list of what must still follow; spots are
compared by identity.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from heapq import nsmallest
from typing import Any, Protocol

from thothy_ai.engine.grammar.expressions import (
    Chars,
    Either,
    Expression,
    Repeat,
    Row,
    chars_of,
    escaped,
    words_in,
)

Stand = Any  # a rule's state after the beginning of a string; false if no string begins so
Spots = tuple["Spot", ...]  # distinct, in a deterministic order

_MAX_PLACES = 512  # of a begun string; if there are more, the soonest and latest to end are followed
_TRIED = 6  # soonest ends to compare, since the shortest string need not have the fewest tokens
_MAX_FIRST_PLACES = 50_000
_MAX_MEMORY = 20_000  # remembered steps


class PatternError(Exception):
    """An expression has syntax that is not understood."""


class StringRule(Protocol):
    """`rise`: the most bytes by which one character can delay the end. `longest`: the most bytes to the end."""

    start: Stand
    rise: int
    longest: int

    def step(self, stand: Stand, code: int) -> Stand:
        """The state after one more character."""

    def accepts(self, stand: Stand) -> bool:
        """Whether the string may end."""

    def nearest(self, stand: Stand) -> int:
        """Bytes up to the end, at least."""

    def following(self, stand: Stand) -> list[Chars]:
        """The classes of the characters that may come next."""

    def strings(self, stand: Stand, words: Sequence[str]) -> list[str]:
        """Strings that lead to the end: a short one, made of these words if possible, or all enumerated ones."""


class Spot:
    """First `head` must follow, then `rest`; None: the expression's end. `cost`: the fewest bytes to the end."""

    __slots__ = ("cost", "head", "rest")

    def __init__(self, head: Expression | None, rest: Spot | None, cost: int) -> None:
        self.head, self.rest, self.cost = head, rest, cost


class Pattern:
    """An expression that whole strings match; it owns its places."""

    def __init__(self, expression: Expression) -> None:
        self._places: dict[tuple[int, int], Spot] = {}
        self._steps: dict[tuple[Spots, int], Spots] = {}
        self._counted: dict[tuple[int, int, int | None], Repeat] = {}
        self.end = Spot(None, None, 0)
        self.start = self._reached([self._before(expression, self.end)], _MAX_FIRST_PLACES)
        self.rise, self.longest = expression.rise, expression.longest

    def step(self, places: Spots, code: int) -> Spots:
        """The places after one more character; none if the expression does not allow it."""
        found = self._steps.get((places, code))
        if found is None:
            after = [place.rest for place in places if isinstance(place.head, Chars) and place.head.has(code)]
            found = self._reached([place for place in after if place is not None])
            if len(self._steps) > _MAX_MEMORY:
                self._steps.clear()
            self._steps[places, code] = found
        return found

    def accepts(self, places: Spots) -> bool:
        """Whether the string may end."""
        return self.end in places

    def nearest(self, places: Spots) -> int:
        """Bytes up to the end, at least."""
        return min(place.cost for place in places)

    def following(self, places: Spots) -> list[Chars]:
        """The classes of the characters that may come next."""
        return list({place.head: None for place in places if isinstance(place.head, Chars)})

    def strings(self, places: Spots, words: Sequence[str]) -> list[str]:
        soonest = nsmallest(_TRIED, places, key=lambda place: place.cost)
        return [words_in(self._soonest(place), words) for place in soonest]

    def _soonest(self, first: Spot) -> list[Chars]:
        """The classes of the shortest string that leads from a place to the end."""
        place: Spot | None = first
        found: list[Chars] = []
        while place is not None and place.head is not None:
            head, rest = place.head, place.rest
            assert rest is not None
            match head:
                case Chars():
                    found.append(head)
                    place = rest
                case Row(parts):
                    for part in reversed(parts):
                        rest = self._before(part, rest)
                    place = rest
                case Either(choices):
                    place = self._before(min(choices, key=lambda choice: choice.cost), rest)
                case Repeat(item, least, _):
                    if isinstance(item, Chars):
                        found += [item] * least
                    else:
                        for _ in range(least if item.cost else 0):  # an empty repetition adds nothing
                            rest = self._before(item, rest)
                    place = rest
        return found

    def _before(self, head: Expression, rest: Spot) -> Spot:
        key = id(head), id(rest)
        found = self._places.get(key)
        if found is None:
            found = self._places[key] = Spot(head, rest, head.cost + rest.cost)
        return found

    def _reached(self, begun: list[Spot], limit: int = _MAX_PLACES) -> Spots:
        """The places before a character, or at the end, that are reached from `begun` without reading one."""
        if len(begun) > limit:
            begun = sorted(begun, key=lambda place: place.cost)
            begun = begun[: limit // 2] + begun[-limit // 2 :]
        left, seen, found = begun, set(begun), dict[Spot, None]()
        while left and len(seen) <= 4 * limit:
            place = left.pop()
            if place.head is None or isinstance(place.head, Chars):
                found[place] = None
                continue
            for each in self._opened(place):
                if each not in seen:
                    seen.add(each)
                    left.append(each)
        return tuple(found)

    def _opened(self, place: Spot) -> list[Spot]:
        """The alternatives of a place that is not before a character."""
        head, rest = place.head, place.rest
        assert rest is not None
        if isinstance(head, Either):
            return [self._before(choice, rest) for choice in head.choices]
        if isinstance(head, Row):
            for part in reversed(head.parts):
                rest = self._before(part, rest)
            return [rest]
        assert isinstance(head, Repeat)
        item, least, most = head.item, head.least, head.most
        found = [] if least and item.cost else [rest]
        if most is None or most > 0:
            key = id(item), max(0, least - 1), None if most is None else most - 1
            if key not in self._counted:  # one object per key, since spots are compared by identity
                self._counted[key] = Repeat(item, *key[1:])
            found.append(self._before(item, self._before(self._counted[key], rest)))
        return found


class Options:
    """The strings of an enumeration. A state is the span of those that begin like the string, and its length."""

    def __init__(self, strings: Iterable[str]) -> None:
        self._strings = sorted(set(strings))
        self.start: Stand = (0, len(self._strings), 0)
        self.rise = self.longest = max(map(len, map(escaped, self._strings)))

    def step(self, span: Stand, code: int) -> Stand:
        if not span:
            return ()
        first, last, at = span
        low = bisect_left(self._strings, code, first, last, key=lambda each: ord(each[at]) if len(each) > at else -1)
        high = bisect_right(self._strings, code, low, last, key=lambda each: ord(each[at]) if len(each) > at else -1)
        return (low, high, at + 1) if low < high else ()

    def accepts(self, span: Stand) -> bool:
        return bool(span) and len(self._strings[span[0]]) == span[2]

    def nearest(self, span: Stand) -> int:
        return min(map(len, self._left(span)), default=0)

    def following(self, span: Stand) -> list[Chars]:
        return [chars_of(((ord(sign), ord(sign)),)) for sign in sorted({left[0] for left in self._left(span) if left})]

    def strings(self, span: Stand, words: Sequence[str]) -> list[str]:  # noqa: ARG002  they are listed
        return self._left(span)

    def _left(self, span: Stand) -> list[str]:
        """The possible rests of the string."""
        return [each[span[2] :] for each in self._strings[span[0] : span[1]]] if span else []
