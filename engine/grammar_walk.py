"""The shortest way to complete a text: found by walking a copy of its matcher, which takes what ends things first.

The walk is greedy. It takes what the grammar forces, otherwise the tokens that close most; where a string may not end
yet, a full stop if the string may end after it, otherwise the longest everyday word. It finds the shortest completion
of the schemas that jobs use, and a short one of others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from thothy_ai.engine.grammar_position import JsonPosition
from thothy_ai.engine.grammar_tokens import Bits, Ids, JsonTokens, first_allowed

if TYPE_CHECKING:
    from llguidance import LLMatcher

_MAX_TOKENS = 8_192
_MAX_MASKS = 2_048
END = -1  # in a walk: the end of text


class Walk(NamedTuple):
    """Tokens that complete a text, and which of them were chosen. END stands for the end of text."""

    tokens: list[int]
    chosen: list[bool]


class Walker:
    """Walks one copy of a matcher, which it uses up, from a text that stands at `position`."""

    def __init__(self, matcher: LLMatcher, tokens: JsonTokens, position: JsonPosition) -> None:
        self._matcher, self._tokens, self._position = matcher, tokens, position.copy()
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
        if forced := self._matcher.compute_ff_tokens():
            return all(self._take(token, chosen=False) for token in forced)
        if self._matcher.is_accepting():
            self._note(END, chosen=True)
            return True
        token = self._best()
        return token is not None and self._take(token, chosen=True)

    def _best(self) -> int | None:
        row, tokens = self._mask(self._matcher), self._tokens
        if not self._position.in_string:
            return _first(row, tokens.brackets, tokens.signs, tokens.longest)
        if (quote := first_allowed(row, tokens.quotes)) is not None:
            return quote
        mark = first_allowed(row, tokens.marks if self._position.wide else tokens.marks[::-1])
        if mark is not None and self._may_end_after(mark):
            return mark
        return _first(row, tokens.fillers, tokens.longest)

    def _may_end_after(self, token: int) -> bool:
        ahead = self._matcher.deep_copy()
        return ahead.consume_token(token) and first_allowed(self._mask(ahead), self._tokens.quotes) is not None

    def _mask(self, matcher: LLMatcher) -> Bits:
        self._masks += 1
        row = np.empty(self._tokens.words, np.int32)
        matcher.unsafe_compute_mask_ptr(row.ctypes.data, row.nbytes)
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


def _first(row: Bits, *sorts: Ids) -> int | None:
    """The first allowed token of the first sort that has one; failing that, any."""
    for sort in (*sorts, np.arange(len(row) * 32)):
        if (token := first_allowed(row, sort)) is not None:
            return token
    return None
