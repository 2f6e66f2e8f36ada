"""Finds out when an output has begun to repeat itself: its last tokens are three equal periods of 1 to 64 tokens.

Short periods must come more often, since "ha ha ha" and the rule of a table are no loops: a repeated run has at least
24 tokens, and at least 96 where it holds no letter. A JSON text repeats keys and the values of enums by its nature:
there, a run counts within one string, or if a string in each of its periods is prose.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Sequence

from thothy_ai.engine.text.token_bytes import TokenBytes

PERIODS = 3
MAX_PERIOD = 64
MIN_TOKENS = 24
MIN_TOKENS_WITHOUT_LETTERS = 96
_EVERY = 4  # tokens between two searches
_TAIL = 8  # tokens, whose earlier occurrences give the periods to try
_TRIES = 4
_PROSE_WORDS = 8  # of a string that is longer than the value of an enum would be
_QUOTE = re.compile(r'(?<!\\)(?:\\\\)*"')
_TYPE = "i"
_SIZE = array(_TYPE).itemsize


class RepetitionDetector:
    """Follows one output. `is_json`: it matches a schema."""

    def __init__(self, vocabulary: TokenBytes, *, is_json: bool) -> None:
        self._vocabulary, self._is_json = vocabulary, is_json
        self._tokens = array(_TYPE)
        self._searched = 0
        self.found = False

    def push(self, tokens: Sequence[int]) -> None:
        """Add tokens; `found` says whether they repeat the ones before."""
        self._tokens.extend(tokens)
        if len(self._tokens) - self._searched >= _EVERY and not self.found:
            self._searched = len(self._tokens)
            self.found = any(self._is_loop(period) for period in self._periods())

    def _periods(self) -> list[int]:
        """Distances at which the last tokens have occurred before, and may do so periodically."""
        data = self._tokens[-(MAX_PERIOD + _TAIL) :].tobytes()
        if len(data) < 2 * _TAIL * _SIZE:
            return []
        tail, end, found = data[-_TAIL * _SIZE :], len(data) - 1, []
        for _ in range(_TRIES):
            end = data.rfind(tail, 0, end)
            if end < 0:
                break
            if end % _SIZE == 0:
                found.append((len(data) - end) // _SIZE - _TAIL)
            end += len(tail) - 1
        return found

    def _is_loop(self, period: int) -> bool:
        count = max(PERIODS * period, MIN_TOKENS)
        if not self._repeats(period, count):
            return False
        text = self._text(count)
        if not any(map(str.isalpha, text)):
            return self._repeats(period, MIN_TOKENS_WITHOUT_LETTERS)
        if not self._is_json or not _QUOTE.search(text):
            return True
        strings = _QUOTE.split(2 * self._text(period))
        return any(len(string.split()) >= _PROSE_WORDS for string in strings)

    def _repeats(self, period: int, count: int) -> bool:
        """Whether the last `count` tokens have this period."""
        return len(self._tokens) >= count and self._tokens[-count + period :] == self._tokens[-count:-period]

    def _text(self, count: int) -> str:
        return self._vocabulary.of(self._tokens[-count:]).decode(errors="replace")
