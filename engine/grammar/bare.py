"""Strings that a model writes without quotes: those that a schema allows, and how one of them ends in time."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
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
_SLACK = 4  # tokens: the last bytes of a character, and the token that is allowed meanwhile


@dataclass(frozen=True, slots=True)
class BareStrings:
    """The strings that `rules` allow: `terminal` is their expression in a Lark grammar, `shortest` one of them."""

    rules: tuple[StringRule, ...]
    terminal: str
    shortest: str

    def allows(self, text: str) -> bool:
        """Whether this is one of them."""
        return all(matches(rule, text) for rule in self.rules)


@lru_cache(256)
def bare_strings(schema: str) -> BareStrings | None:
    """Those of a schema (JSON text) that has no keywords but those of strings. None where no grammar of bare strings
    can be made of it: for syntax of expressions that only llguidance understands, and where no string is found.
    """
    try:
        node = json.loads(source_of(schema).schema)
        keywords: Keywords | None = Keywords.of(node)
        for other in node.get("allOf", ()):  # of a format
            keywords = None if keywords is None else keywords.and_(Keywords.of(other))
        expressions = () if keywords is None else keywords.string_expressions()
        terminals = [f"(/{_written(each)}/)" for each in expressions]
    except (GrammarError, PatternError, UnknownError, TypeError):
        return None
    rules = tuple(map(Pattern, expressions))
    shortest = shortest_string(rules) if rules else ""
    return None if shortest is None else BareStrings(rules, " & ".join(terminals or [_ANY]), shortest)


class End(NamedTuple):
    """The rest of a string, as tokens."""

    num_bytes: int
    tokens: Sequence[int]


class BareEnds:
    """The ends of a schema's bare strings. In tokens: `shortest` is a whole string; an end is never `far` or more away,
    and the next token delays it by `delay` at most.
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
    """One string that has begun. It is read when its end is asked for."""

    def __init__(self, ends: BareEnds) -> None:
        self.ends, self._state, self._unread = ends, ends.text.start, b""

    def feed(self, token: int) -> None:
        self._unread += self.ends.tokens.table[token]

    def end(self) -> End | None:
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
        return End(len(rest), self.ends.tokens.divided(rest))


def _written(expression: Expression) -> str:
    """An expression as a regular expression of llguidance, which matches whole strings."""
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
