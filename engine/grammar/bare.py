"""Strings that a model writes without quotes: which ones a schema allows, and how a begun one ends in time."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from thothy_ai.engine.api.errors import GrammarError
from thothy_ai.engine.grammar.dialect import source_of
from thothy_ai.engine.grammar.expressions import ANY, Chars, Either, Expression, Repeat, Row
from thothy_ai.engine.grammar.keywords import Keywords, UnknownError
from thothy_ai.engine.grammar.matching import Pattern, PatternError, StringRule
from thothy_ai.engine.grammar.texts import Text, matches, shortest_string
from thothy_ai.engine.grammar.tokens import JsonTokens

_ANY = r"(/(.|\n)*/)"
_MAX_PATTERN = 500  # characters
_MAX_LONGEST = 512  # bytes to a string's end, which is searched for after every token
_MAX_WORK = 8_000  # places times characters of a string; some 10 ms
_REQUEST_WORK = 16_000
_UNKNOWN_WORK = 2_000  # counted for a schema without a known string
_SLACK = 4  # tokens: the last bytes of a character, and the token that is allowed meanwhile


@dataclass(frozen=True, slots=True)
class BareStrings:
    """The strings that `rules` allow. `terminal` is their expression in a Lark grammar, and `shortest` one of the
    shortest. A begun string is at no more than `places` places of the rules at once.
    """

    rules: tuple[StringRule, ...]
    terminal: str
    shortest: str
    places: int


@lru_cache(256)
def bare_strings(schema: str) -> BareStrings | None:
    """The bare strings of a schema (JSON text) that has only keywords of strings. None if they can't have a grammar: if
    a pattern has syntax that only llguidance understands, no string is found, or following a string would take long.
    """
    try:
        node = json.loads(source_of(schema).schema)
        keywords: Keywords | None = Keywords.of(node)
        for other in node.get("allOf", ()):  # of a format
            keywords = None if keywords is None else keywords.and_(Keywords.of(other))
        if keywords is not None and any(len(pattern) > _MAX_PATTERN for pattern in keywords.patterns):
            return None
        expressions = () if keywords is None else keywords.string_expressions()
        places = sum(_size(each).places for each in expressions)
        longest = sum(each.longest for each in expressions)
        if longest > _MAX_LONGEST or places * longest > _MAX_WORK:
            return None
        terminals = [f"(/{_written(each)}/)" for each in expressions]
    except (GrammarError, PatternError, UnknownError, TypeError):
        return None
    rules = tuple(map(Pattern, expressions))
    shortest = shortest_string(rules, _MAX_WORK // places) if places else ""
    return None if shortest is None else BareStrings(rules, " & ".join(terminals or [_ANY]), shortest, places)


@dataclass(slots=True)
class BareSearch:
    """Finds the bare strings of one request's schemas, until its budget of `work` is used up."""

    work: int = _REQUEST_WORK
    # Strings without bounds cost nothing, and are common.
    _known: dict[str, BareStrings | None] = field(default_factory=lambda: {"{}": bare_strings("{}")})

    def strings(self, schema: str) -> BareStrings | None:
        """The bare strings of a schema (JSON text); None if `bare_strings` finds none, or no work is left."""
        if schema not in self._known and self.work > 0:
            found = self._known[schema] = bare_strings(schema)
            self.work -= 8 * len(schema)
            self.work -= _UNKNOWN_WORK if found is None else found.places * (4 + len(found.shortest))
        return self._known.get(schema)

    def allowed(self, schema: str, texts: Sequence[str]) -> Sequence[str]:
        """The `texts` that the schema allows."""
        found = self.strings(schema)
        if found is None or (work := found.places * sum(map(len, texts))) > self.work:
            return ()
        self.work -= work
        return [text for text in texts if all(matches(rule, text) for rule in found.rules)]


class ShortestEnd(NamedTuple):
    """The rest of a string, as tokens."""

    num_bytes: int
    tokens: Sequence[int]


class BareEnds:
    """The ends of a schema's bare strings, in tokens. `shortest` is the length of a shortest string. An end is always
    less than `far` tokens away, and the next token delays it by at most `delay`.
    """

    def __init__(self, schema: str, tokens: JsonTokens) -> None:
        found = bare_strings(schema)
        if found is None:
            raise GrammarError(f"no string is known for {schema:.200}")
        self.text, self.tokens = Text(found.rules, tokens), tokens
        self.shortest = tokens.divided(found.shortest.encode())
        self.delay = min(self.text.rise * tokens.horizon, self.text.longest) + _SLACK
        self.far = self.text.longest + self.delay


class BareText:
    """A begun string, which is read only when its end is asked for."""

    def __init__(self, ends: BareEnds) -> None:
        self.ends, self._state, self._unread = ends, ends.text.start, b""

    def feed(self, token: int) -> None:
        self._unread += self.ends.tokens.table[token]

    def end(self) -> ShortestEnd | None:
        """The shortest end from here; None within a character, and if none is found."""
        text, data = self.ends.text, self._unread.replace(b"\\", b"\\\\").replace(b'"', b'\\"')  # as in JSON
        state = text.read(self._state, data)
        if state is None:
            return None
        self._state, self._unread = state, b""
        found = None if state.pending else text.end(state)
        if found is None:
            return None
        rest: bytes = json.loads(b'"' + found + b'"').encode()
        return ShortestEnd(len(rest), self.ends.tokens.divided(rest))


class _Size(NamedTuple):
    """How many `places` of an expression a string can be at simultaneously, and how many if it can have reached them
    after different numbers of characters. `chars`: the length of all its strings, None if they differ in length.
    """

    places: int
    any_time: int
    chars: int | None


def _size(expression: Expression) -> _Size:
    match expression:
        case Row(parts):
            places, any_time, chars = 0, 0, 0
            fixed = True
            for part in map(_size, parts):
                places += part.places if fixed else part.any_time
                any_time += part.any_time
                fixed = fixed and part.chars is not None
                chars += part.chars or 0
            return _Size(places, any_time, chars if fixed else None)
        case Either(choices):
            sizes = [_size(choice) for choice in choices]
            lengths = {size.chars for size in sizes}
            any_time = sum(size.any_time for size in sizes)
            return _Size(sum(size.places for size in sizes), any_time, lengths.pop() if len(lengths) == 1 else None)
        case Repeat(item, least, most):
            size, times = _size(item), least + 1 if most is None else most
            any_time = times * max(1, size.any_time)
            # If all items have the same length, the number of characters determines the item's number.
            places = size.places if size.chars or times <= 1 else any_time
            return _Size(places, any_time, least * size.chars if least == most and size.chars is not None else None)
    return _Size(1, 1, 1)


def _written(expression: Expression) -> str:
    """The expression in llguidance's syntax, which matches whole strings."""
    match expression:
        case Row(parts):
            return "".join(map(_written, parts))
        case Either(choices):
            return f"({'|'.join(map(_written, choices))})"
        case Repeat(item, least, most):
            return f"({_written(item)}){{{least},{'' if most is None else most}}}"
    assert isinstance(expression, Chars)
    if (known := expression.and_(ANY)) is None:
        raise PatternError("a class without characters")
    ranges = (rf"\x{{{low:x}}}-\x{{{high:x}}}" for low, high in known.ranges)
    return f"[{''.join(ranges)}]"
