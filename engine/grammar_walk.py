"""The shortest way to complete a text: found by walking a copy of its matcher, which takes what ends things first.

The walk is greedy. It takes what the grammar forces, otherwise the tokens that close most; where a string may not end
yet, a full stop if it ends a sentence, otherwise the longest everyday word. It finds the shortest completion of the
schemas that jobs use, and a short one of others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from thothy_ai.engine.grammar_position import JsonPosition
from thothy_ai.engine.grammar_tokens import Bits, JsonTokens, first_allowed

if TYPE_CHECKING:
    from llguidance import LLMatcher

_MAX_TOKENS = 8_192
_MAX_MASKS = 2_048
_BOTH = 2
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
        tokens = self._tokens
        if not self._position.in_string:
            return self._first(tokens.brackets, tokens.signs)
        if (quote := self._allowed(tokens.quotes)) is not None:
            return quote
        mark = self._allowed(tokens.marks if self._position.wide else tokens.marks[::-1])
        if mark is not None and self._ends_something(mark):
            return mark
        return self._first(tokens.fillers)

    def _allowed(self, tokens: Sequence[int]) -> int | None:
        """The first that the grammar allows. To try some takes microseconds, a mask of all hundreds of them."""
        return next((token for token in tokens if self._matcher.validate_tokens([token])), None)

    def _first(self, *sorts: Sequence[int]) -> int | None:
        """The first allowed token of the first sort that has one; failing that, any."""
        for sort in sorts:
            if (token := self._allowed(sort)) is not None:
                return token
        return first_allowed(self._mask(), self._tokens.longest)

    def _ends_something(self, mark: int) -> bool:
        """Whether the string may end after it, or a sentence does, and the next one must begin."""
        after, word = self._tokens.quotes, self._tokens.word
        if any(self._matcher.validate_tokens([mark, token]) == _BOTH for token in after):
            return True
        return word is not None and self._matcher.validate_tokens([mark, word]) < _BOTH

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
