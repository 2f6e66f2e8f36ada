"""Detects when an output has begun to repeat itself: its last tokens are three equal periods of 1 to 64 tokens.

Short periods must repeat more often, since "ha ha ha" and the rule of a table are no loops: a repeated run has at least
24 tokens, and at least 96 if it has no letter.

A JSON text naturally repeats keys, numbers and values of enums. There, a run counts only within one string, or if each
of its periods contains a string of prose. Text that the schema demands is no loop either: a string counts unless the
schema itself contains it, and only once it is longer than any that a pattern or `minLength` requires.
"""

from __future__ import annotations

import json
import re
from array import array
from collections.abc import Sequence
from functools import cached_property

from thothy_ai.engine.grammar.patterns import least_bytes
from thothy_ai.engine.text.token_bytes import TokenBytes

PERIODS = 3
MAX_PERIOD = 64
MIN_TOKENS = 24
MIN_TOKENS_WITHOUT_LETTERS = 96
_EVERY = 4  # tokens between two searches
_TAIL = 8  # tokens, whose earlier occurrences give the periods to try
_TRIES = 4
_PROSE_WORDS = 8  # of a string that is longer than the value of an enum would be
_QUOTE = re.compile(rb'(?<!\\)(?:\\\\)*"')
_TYPE = "i"
_SIZE = array(_TYPE).itemsize


class RepetitionDetector:
    """Follows one output, which matches `schema` (JSON text) if there is one."""

    def __init__(self, vocabulary: TokenBytes, schema: str | None) -> None:
        self._vocabulary, self._schema = vocabulary, schema
        self._tokens = array(_TYPE)
        self._read = 0  # tokens of a JSON text, of which `_open` is what follows the last of its `_quotes`
        self._quotes, self._open = 0, b""
        self.found = False

    def push(self, tokens: Sequence[int]) -> int:
        """Add tokens, but none after the one with which a loop is `found`; returns how many were added."""
        for count, token in enumerate(tokens, 1):
            self._tokens.append(token)
            if len(self._tokens) % _EVERY == 0 and any(self._is_loop(period) for period in self._periods()):
                self.found = True
                return count
        return len(tokens)

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
        run = self._vocabulary.of(self._tokens[-count:])
        if not any(map(str.isalpha, run.decode(errors="replace"))):
            count = MIN_TOKENS_WITHOUT_LETTERS
            if not self._repeats(period, count):
                return False
        if self._schema is None:
            return True
        if not _QUOTE.search(run):
            return self._in_string() and self._is_own(self._open)
        for string in _QUOTE.split(2 * self._vocabulary.of(self._tokens[-period:]))[1:-1]:
            words = string.decode(errors="replace").split()
            is_prose = sum(any(map(str.isalpha, word)) for word in words) >= _PROSE_WORDS
            if is_prose and self._is_own(string, b'"'):
                return True
        return False

    def _in_string(self) -> bool:
        """Whether a string of the JSON text is open; `_open` is its beginning."""
        self._open += self._vocabulary.of(self._tokens[self._read :])
        self._read = len(self._tokens)
        *before, self._open = _QUOTE.split(self._open)
        self._quotes += len(before)
        if self._quotes % 2 == 0:
            self._open = b""
        return self._quotes % 2 == 1

    def _is_own(self, string: bytes, end: bytes = b"") -> bool:
        """Whether the model wrote more of a string than what the schema contains or demands."""
        given, demanded = self._given
        return len(string) > demanded and b'"%s%s' % (string, end) not in given

    @cached_property
    def _given(self) -> tuple[bytes, int]:
        """The schema as compact JSON, with its keys and constants, and the bytes of the longest string that it asks for
        otherwise.
        """
        root = json.loads(self._schema or "{}")
        demanded, nodes = 0, [root]
        while nodes:
            node = nodes.pop()
            if isinstance(node, dict):
                least, pattern = node.get("minLength"), node.get("pattern")
                demanded = max(demanded, int(least) if isinstance(least, int | float) else 0)
                demanded = max(demanded, least_bytes(pattern) if isinstance(pattern, str) else 0)
            nodes += node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
        return json.dumps(root, separators=(",", ":"), ensure_ascii=False).encode(errors="surrogatepass"), demanded

    def _repeats(self, period: int, count: int) -> bool:
        """Whether the last `count` tokens have this period."""
        return len(self._tokens) >= count and self._tokens[-count + period :] == self._tokens[-count:-period]
