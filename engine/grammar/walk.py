"""The shortest way to complete a text, found by walking a copy of its matcher.

The walk is greedy. It takes an enumeration's shortest string from the schema, otherwise what the grammar forces,
otherwise the tokens that close most; where a string may not end yet, a full stop if it ends a sentence, otherwise the
longest everyday word. It finds the shortest completion of the schemas that jobs use, and a short one of others.
"""

from __future__ import annotations

import json
from collections.abc import Sequence, Set
from heapq import nsmallest
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from thothy_ai.engine.grammar.fields import TextFields
from thothy_ai.engine.grammar.position import JsonPosition
from thothy_ai.engine.grammar.tokens import Bits, allowed_tokens, first_allowed

if TYPE_CHECKING:
    from llguidance import LLMatcher

_MAX_TOKENS = 8_192
_MAX_MASKS = 2_048
_BOTH = 2  # of two tokens, a matcher accepts all
_TRIED = 6  # words
_FEW, _MAX_BRANCHES = 96, 1  # tokens that may follow in an enumeration, and how often it may branch again
_MEASURED = 4  # strings of an enumeration, the shortest in bytes, of which the shortest in tokens is chosen
_ENDLESS = 2**20
END = -1  # in a walk: the end of text


class Walk(NamedTuple):
    """Tokens that complete a text, and which of them were chosen. END stands for the end of text."""

    tokens: list[int]
    chosen: list[bool]


class Walker:
    """Walks one copy of a matcher, which it uses up, from a text that stands at `position`."""

    def __init__(self, matcher: LLMatcher, fields: TextFields, position: JsonPosition) -> None:
        self._matcher, self._fields, self._position = matcher, fields, position.copy()
        self._tokens = fields.tokens
        self._walk = Walk([], [])
        self._string_end: int | None = None  # tokens up to the one that ends the string
        self._masks = 0

    def to_the_end(self) -> Walk | None:
        """Complete the text; None if the walk fails or takes too long."""
        while not self._matcher.is_stopped() and self._walk.tokens[-1:] != [END]:
            if not self._step():
                return None
        return None if self._matcher.is_error() else self._walk

    def to_the_end_of_the_string(self) -> list[int] | None:
        """Complete the string that is open: the tokens up to the one that ends it. None if the walk fails."""
        while self._string_end is None:
            if not self._step():
                return None
        return self._walk.tokens[: self._string_end]

    def _step(self) -> bool:
        """Take what is forced, or one token."""
        if self._masks > _MAX_MASKS or len(self._walk.tokens) > _MAX_TOKENS:
            return False
        if self._position.value_is_empty and (option := self._shortest_option()):
            return all(self._take(token, chosen=not place) for place, token in enumerate(option))
        if forced := self._matcher.compute_ff_tokens():
            return all(self._take(token, chosen=False) for token in forced)
        if self._matcher.is_accepting():
            self._note(END, chosen=True)
            return True
        token = self._best()
        return token is not None and self._take(token, chosen=True)

    def _best(self) -> int | None:
        tokens = self._tokens
        if not self._position.in_string:
            return self._first(tokens.brackets, tokens.nulls, tokens.signs)
        if (quote := self._allowed(tokens.quotes)) is not None:
            return quote
        mark = self._allowed(tokens.marks if self._position.wide else tokens.marks[::-1])
        if mark is not None:
            validate, word = self._matcher.validate_tokens, tokens.word
            ends_string = any(validate([mark, quote]) == _BOTH for quote in tokens.quotes)
            # The mark ends a sentence if no word of the same sentence may follow.
            if ends_string or (word is not None and validate([mark, word]) < _BOTH):
                return mark
        # In a text, many words may follow; in an enumeration, hardly one of those tried.
        tried = tokens.fillers[:_TRIED]
        if 2 * sum(self._matcher.validate_tokens([token]) for token in tried) < len(tried):
            lengths = {token: self._length_after(token, _MAX_BRANCHES) for token in self._branches()}
            soonest = min(lengths, key=lambda token: (lengths[token], -len(tokens.table[token])), default=None)
            if soonest is not None and lengths[soonest] < _ENDLESS:
                return soonest
        return self._first(tokens.fillers)

    def _shortest_option(self) -> list[int]:
        """Tokens of the shortest string of the enumeration that the schema has here, if there is one.

        The grammar may allow fewer: other keywords beside `enum` exclude some.
        """
        texts = [
            json.dumps(option, ensure_ascii=False)[1:-1].encode(errors="surrogatepass")
            for option in self._fields.options(self._position.place)
        ]
        divided = sorted(map(self._tokens.divided, nsmallest(_MEASURED, texts, key=len)), key=len)
        for option in divided:
            complete = len(option) + 1
            if any(self._matcher.validate_tokens([*option, quote]) == complete for quote in self._tokens.quotes):
                return option
        return []

    def _branches(self) -> list[int]:
        """The tokens that may come next, if they are few, except those that others extend in every possible way."""
        row = self._mask()
        found = allowed_tokens(row) if np.count_nonzero(row) <= _FEW else []
        if not 1 <= len(found) <= _FEW:
            return []
        known = {self._tokens.table[token] for token in found}
        return [token for token in found if not self._is_extended(token, known)]

    def _is_extended(self, token: int, known: Set[bytes]) -> bool:
        """Whether the token and any byte that may follow it are always another of these tokens."""
        data = self._tokens.table[token]
        if not any(len(other) == len(data) + 1 and other.startswith(data) for other in known):
            return False
        after = Walker(self._matcher.deep_copy(), self._fields, self._position)
        if not after._take(token, chosen=True):
            return False
        following = allowed_tokens(after._mask())
        return all(data + self._tokens.table[other][:1] in known for other in following)

    def _length_after(self, token: int, branches: int) -> int:
        """Tokens up to the end of the string, if it continues with this one; `_ENDLESS` if that is not known."""
        walker = Walker(self._matcher.deep_copy(), self._fields, self._position)
        if not walker._take(token, chosen=True):
            return _ENDLESS
        while walker._string_end is None:
            forced = walker._matcher.compute_ff_tokens()
            if not forced:
                found = walker._branches() if branches else []
                shortest = min((walker._length_after(each, branches - 1) for each in found), default=_ENDLESS)
                return len(walker._walk.tokens) + shortest
            if not all(walker._take(each, chosen=False) for each in forced):
                return _ENDLESS
        return walker._string_end

    def _allowed(self, tokens: Sequence[int]) -> int | None:
        """The first that the grammar allows."""
        # Trying some takes microseconds, a mask of all takes hundreds of them.
        return next((token for token in tokens if self._matcher.validate_tokens([token])), None)

    def _first(self, *sorts: Sequence[int]) -> int | None:
        """The first allowed token of the first sort that has one; failing that, any."""
        for sort in sorts:
            if (token := self._allowed(sort)) is not None:
                return token
        return first_allowed(self._mask(), self._tokens.longest)

    def _mask(self) -> Bits:
        self._masks += 1
        row = np.empty(self._tokens.words, np.int32)
        self._matcher.unsafe_compute_mask_ptr(row.ctypes.data, row.nbytes)
        return row

    def _take(self, token: int, *, chosen: bool) -> bool:
        if not self._matcher.consume_token(token):
            return False
        self._note(token, chosen=chosen)
        return True

    def _note(self, token: int, *, chosen: bool) -> None:
        self._walk.tokens.append(token)
        self._walk.chosen.append(chosen)
        if token == END:
            return
        was_open, ended = self._position.in_string, self._position.strings
        self._position.feed(self._tokens.table[token])
        if was_open and self._string_end is None and self._position.strings > ended:
            self._string_end = len(self._walk.tokens)
