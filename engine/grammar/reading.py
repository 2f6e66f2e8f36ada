"""Tracks a JSON text through the shapes of its schema, and finds its shortest end.

A text can be at several `Point`s at once, one for each way to read it. Used by one thread at a time.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from thothy_ai.engine.grammar.numbers import Number
from thothy_ai.engine.grammar.shapes import Cost, Kind, List, Record, Shape, Shapes, Word
from thothy_ai.engine.grammar.texts import ContentState, Text
from thothy_ai.engine.grammar.tokens import JsonTokens

_MAX_POINTS = 48  # per text; if there are more, the soonest to end are followed
_QUOTE = 0x22
_SPACE = b" \n\r\t"
_CONTENT = re.compile(rb'(?:[^"\\]|\\.)*', re.DOTALL)
_NUMERIC = b"0123456789+-.eE"


class Point:
    """A part of the text that is expected or has begun, and the `rest` after it; the text's end has no rest."""

    def __init__(self, rest: Point | None, tokens: JsonTokens) -> None:
        self.rest, self.tokens = rest, tokens
        self._cost: Cost | int | None = 0  # 0: not known yet

    def step(self, byte: int) -> Iterable[Point]:
        """The points after one more byte."""
        raise NotImplementedError

    def own_cost(self) -> Cost | None:
        """The cost of the part's own shortest end; None if there is none."""
        raise NotImplementedError

    def write(self) -> tuple[bytes, Point | None]:
        """The first bytes of the shortest end, and the point after them."""
        raise NotImplementedError

    def cost(self) -> Cost | None:
        """The cost of the text's shortest end; None if there is none."""
        if self._cost == 0:
            point, points = self, list[Point]()
            while point._cost == 0:
                points.append(point)
                if point.rest is None:
                    break
                point = point.rest
            for each in reversed(points):
                own = each.own_cost()
                after = Cost(0) if each.rest is None else each.rest._cost
                each._cost = None if own is None or after is None else own + after  # type: ignore[operator]
        return self._cost  # type: ignore[return-value]


class TextEnd(Point):
    """The text is complete, and only white space may follow."""

    def __init__(self, tokens: JsonTokens) -> None:
        super().__init__(None, tokens)

    def step(self, byte: int) -> Iterable[Point]:
        return [self] if byte in _SPACE else []

    def own_cost(self) -> Cost:
        return Cost(0)

    def write(self) -> tuple[bytes, Point | None]:
        return b"", None


class Bytes(Point):
    """The rest of a word, of a declared key, or of the colon after it."""

    def __init__(self, data: bytes, rest: Point, *, begun: bool = False) -> None:
        super().__init__(rest, rest.tokens)
        self.data, self.after, self._begun = data, rest, begun

    def step(self, byte: int) -> Iterable[Point]:
        if byte != self.data[0]:
            return [self] if byte in _SPACE and not self._begun else []
        return [Bytes(self.data[1:], self.after, begun=True) if len(self.data) > 1 else self.after]

    def own_cost(self) -> Cost:
        return Cost(self.tokens.count(self.data))

    def write(self) -> tuple[bytes, Point | None]:
        return self.data, self.after


class Value(Point):
    """A value that has not begun."""

    def __init__(self, shape: Shape, rest: Point) -> None:
        super().__init__(rest, rest.tokens)
        self._shape = shape

    def step(self, byte: int) -> Iterable[Point]:
        if byte in _SPACE:
            return [self]
        return [point for kind in self._shape.kinds if (point := begun(kind, byte, self._rest)) is not None]

    @property
    def _rest(self) -> Point:
        assert self.rest is not None
        return self.rest

    def own_cost(self) -> Cost | None:
        return self._shape.cost

    def write(self) -> tuple[bytes, Point | None]:
        match self._shape.best:
            case Word(data):
                return data, self.rest
            case Number() as number:
                return (number.end("") or "").encode(), self.rest
            case Text() as text:
                return b'"' + (text.end(text.start) or b"") + b'"', self.rest
            case List() as kind:
                return b"[", Items(kind, 0, self._rest)
            case Record() as kind:
                return b"{", Members(kind, 0, 0, frozenset(), self._rest)
        raise AssertionError("a value without a shortest one is not written")


def begun(kind: Kind, byte: int, rest: Point) -> Point | None:
    """The point after a value's first byte; None if no value of this kind begins with it."""
    match kind:
        case Word(data):
            return Bytes(data[1:], rest, begun=True) if data[0] == byte else None
        case Text():
            return String(kind, kind.start, rest) if byte == _QUOTE else None
        case Number():
            sign = chr(byte)
            return Digits(kind, sign, rest) if byte in _NUMERIC and kind.continues(sign) else None
        case List():
            return Items(kind, 0, rest) if byte == ord("[") else None
        case Record():
            return Members(kind, 0, 0, frozenset(), rest) if byte == ord("{") else None


class String(Point):
    """An open string or key in a `state`, followed by `unread` content. Until `catch_up` reads that, the end is assumed
    to be as far off as possible.
    """

    def __init__(self, text: Text, state: ContentState | None, rest: Point, unread: bytes = b"") -> None:
        super().__init__(rest, rest.tokens)
        self.text, self._state, self.unread = text, state, unread

    @property
    def may_wait(self) -> bool:
        """Whether reading more content can be put off."""
        return self.text.may_wait and self._state is not None and not self._state.pending

    @property
    def state(self) -> ContentState | None:
        """The state of its text; None if the schema allows no such text."""
        if self.unread:
            self._state = self._state and self.text.read(self._state, self.unread)
            self.unread, self._cost = b"", 0
        return self._state

    def step(self, byte: int) -> Iterable[Point]:
        assert self.rest is not None
        if byte == _QUOTE and self.unread:  # the grammar allowed it, so no other reading is possible
            return [self.rest]
        state = self.state
        if state is None:
            return []
        if byte == _QUOTE and not state.pending.startswith(b"\\"):
            return [self.closed()] if self.text.accepts(state) else []
        return self.extended(bytes([byte]))

    def closed(self) -> Point:
        assert self.rest is not None
        if isinstance(self.rest, Named) and self.state is not None:
            return self.rest.named(self.state.read)
        return self.rest

    def extended(self, data: bytes, *, later: bool = False) -> list[Point]:
        """The points after more content; with `later`, it is read only when needed."""
        assert self.rest is not None
        if later:
            return [String(self.text, self._state, self.rest, self.unread + data)]
        before = self.state
        state = before and self.text.read(before, data)
        if state is None:
            return []
        return [self if state is before else String(self.text, state, self.rest)]

    def own_cost(self) -> Cost | None:
        if self.unread:
            return Cost(self.text.longest + 1)
        end = self._end()
        return None if end is None else Cost(self.tokens.count(end + b'"'))

    def write(self) -> tuple[bytes, Point | None]:
        end = self._end() or b""
        after = self.rest
        if isinstance(after, Named) and self.state is not None:
            state = self.text.read(self.state, end)
            after = after.named("" if state is None else state.read)
        return end + b'"', after

    def _end(self) -> bytes | None:
        return None if self.state is None else self.text.end(self.state)


class Digits(Point):
    """A number that has begun."""

    def __init__(self, number: Number, text: str, rest: Point) -> None:
        super().__init__(rest, rest.tokens)
        self._number, self._text = number, text

    def step(self, byte: int) -> Iterable[Point]:
        assert self.rest is not None
        if byte in _NUMERIC:
            text = self._text + chr(byte)
            return [Digits(self._number, text, self.rest)] if self._number.continues(text) else []
        return self.rest.step(byte) if self._number.accepts(self._text) else []

    def own_cost(self) -> Cost | None:
        end = self._number.end(self._text)
        return None if end is None else Cost(self.tokens.count(end.encode()))

    def write(self) -> tuple[bytes, Point | None]:
        return (self._number.end(self._text) or "").encode(), self.rest


class Items(Point):
    """An open array, after `count` items."""

    def __init__(self, kind: List, count: int, rest: Point) -> None:
        super().__init__(rest, rest.tokens)
        self._kind, self._count = kind, count

    def step(self, byte: int) -> Iterable[Point]:
        assert self.rest is not None
        if byte in _SPACE:
            return [self]
        if byte == ord("]"):
            return [self.rest] if self._count >= self._kind.least else []
        item = self._kind.item(self._count)
        if item is None:
            return []
        value = Value(item, Items(self._kind, self._count + 1, self.rest))
        if self._count:
            return [value] if byte == ord(",") else []
        return value.step(byte)

    def own_cost(self) -> Cost | None:
        return self._kind.cost(self._count)

    def write(self) -> tuple[bytes, Point | None]:
        assert self.rest is not None
        item = self._kind.item(self._count) if self._count < self._kind.least else None
        if item is None:
            return b"]", self.rest
        return b"," if self._count else b"", Value(item, Items(self._kind, self._count + 1, self.rest))


class Members(Point):
    """An open object after some members; properties from `at` on can follow. `comma`: a comma was read."""

    def __init__(
        self, kind: Record, at: int, written: int, used: frozenset[str], rest: Point, *, comma: bool = False
    ) -> None:
        super().__init__(rest, rest.tokens)
        self._kind, self._at, self._written, self._used, self._comma = kind, at, written, used, comma
        self.colon = kind.colon

    def step(self, byte: int) -> Iterable[Point]:
        assert self.rest is not None
        if byte in _SPACE:
            return [self]
        required = next((each for each in self._kind.properties[self._at :] if each.required), None)
        if byte == ord("}"):
            return [self.rest] if required is None and not self._comma and self._written >= self._kind.least else []
        if byte == ord(",") and self._written and not self._comma:
            return [Members(self._kind, self._at, self._written, self._used, self.rest, comma=True)]
        if byte != _QUOTE or (self._written and not self._comma):
            return []
        found: list[Point] = []
        for at in range(self._at, len(self._kind.properties)):
            key, shape, needed = self._kind.properties[at]
            if shape.cost is not None:
                found.append(Bytes(key[1:], Bytes(self.colon, Value(shape, self._after(at + 1, ""))), begun=True))
            if needed:
                return found
        end = len(self._kind.properties)
        return found + [
            String(key, key.start, Named(self, end, shape)) for key, shape in self._kind.others if shape.cost
        ]

    def _after(self, at: int, key: str) -> Members:
        assert self.rest is not None
        used = self._used | {key} if key and self._kind.least else self._used
        return Members(self._kind, at, self._written + 1, used, self.rest)

    def own_cost(self) -> Cost | None:
        return self._kind.cost(self._at, self._written, self.tokens)

    def write(self) -> tuple[bytes, Point | None]:
        comma = b"," if self._written and not self._comma else b""
        lacking = self._kind.least - self._written - sum(each.required for each in self._kind.properties[self._at :])
        for at in range(self._at, len(self._kind.properties)):
            key, shape, needed = self._kind.properties[at]
            if needed or (lacking > 0 and shape.cost is not None):
                return comma + key + self.colon, Value(shape, self._after(at + 1, ""))
        if lacking <= 0 and not self._comma:
            return b"}", self.rest
        names, shape = next((names, shape) for names, shape in self._kind.others if shape.cost is not None)
        name = names.key_besides(self._used)
        return comma + b'"' + name + b'"' + self.colon, Value(
            shape, self._after(len(self._kind.properties), name.decode())
        )


class Named(Point):
    """The value of an undeclared key, and what follows it."""

    def __init__(self, members: Members, at: int, shape: Shape) -> None:
        super().__init__(members._after(at, ""), members.tokens)
        self._members, self._at, self._shape = members, at, shape

    def named(self, key: str) -> Point:
        return Bytes(self._members.colon, Value(self._shape, self._members._after(self._at, key)))

    def step(self, byte: int) -> Iterable[Point]:  # noqa: ARG002  its key has not ended
        return []

    def own_cost(self) -> Cost | None:
        return None if self._shape.cost is None else Cost(1) + self._shape.cost


class Reading:
    """Reads a text piece by piece."""

    def __init__(self, points: list[Point]) -> None:
        self._points = points

    @classmethod
    def at_start(cls, shapes: Shapes, tokens: JsonTokens) -> Reading:
        return cls([Value(shapes.root, TextEnd(tokens))])

    def copy(self) -> Reading:
        return Reading(self._points)

    def feed(self, data: bytes) -> None:
        at = 0
        while at < len(data):
            points: list[Point] = []
            strings = [point for point in self._points if isinstance(point, String)]
            later = len(self._points) == 1 and len(strings) == 1 and strings[0].may_wait
            if later or (
                len(strings) == len(self._points) and not any(each.state and each.state.pending for each in strings)
            ):
                found = _CONTENT.match(data, at)
                if found is not None and found.end() > at:
                    for each in strings:
                        points += each.extended(found[0], later=later)
                    at, self._points = found.end(), points
                    continue
            only = self._points[0] if len(self._points) == 1 else None
            if isinstance(only, Bytes) and data.startswith(only.data, at):  # a whole key, as most bytes outside strings
                at, self._points = at + len(only.data), [only.after]
                continue
            for point in self._points:
                points += point.step(data[at])
            if len(points) > _MAX_POINTS:
                points = sorted(points, key=self._far)[:_MAX_POINTS]
            self._points = points
            at += 1

    @property
    def is_behind(self) -> bool:
        """Whether a string has unread content, so that the cost is an upper bound."""
        return any(isinstance(point, String) and point.unread for point in self._points)

    def catch_up(self) -> None:
        """Read the content that was put off."""
        self._points = [point for point in self._points if not isinstance(point, String) or point.state is not None]

    def cost(self) -> Cost | None:
        """The cost of the shortest end; None if none is known."""
        costs = [cost for point in self._points if (cost := point.cost()) is not None]
        return min(costs, default=None)

    def after_string(self) -> Cost | None:
        """The cost of what follows the open string; None if no string is open, or if that depends on the string."""
        if not all(isinstance(point, String) for point in self._points):
            return None
        costs = [cost for point in self._points if point.rest and (cost := point.rest.cost()) is not None]
        return max(costs, default=None)

    def end(self) -> bytes | None:
        """The shortest end; None if none is known."""
        known = [point for point in self._points if point.cost() is not None]
        if not known:
            return None
        point: Point | None = min(known, key=self._far)
        pieces: list[bytes] = []
        while point is not None:
            data, point = point.write()
            pieces.append(data)
        return b"".join(pieces)

    def end_of_string(self) -> bytes | None:
        """The shortest end of the open string; None if no string is open, or no end is known."""
        known = [point for point in self._points if isinstance(point, String) and point.cost() is not None]
        if not known or len(known) < len(self._points):
            return None
        return min(known, key=self._far).write()[0]

    def _far(self, point: Point) -> int:
        cost = point.cost()
        return 2**31 if cost is None else cost.tokens
