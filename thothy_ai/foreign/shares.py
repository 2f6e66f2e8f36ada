"""Attributes a server's seconds to texts: each second is divided among the texts in flight by their tokens.

Tokens in flight are those of the prompt and of the output so far, which a server keeps and attends to. The sum over all
texts equals the time in which any was in flight.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable


class TokenShares:
    """Owns the texts in flight at one server. Each call takes constant time."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._at = clock()
        self._tokens = 0  # of all in flight
        self._per_token = 0.0  # seconds so far for a token in flight from the start
        self._entries: dict[Hashable, _Entry] = {}
        self._busy = 0.0

    @property
    def busy_seconds(self) -> float:
        """Seconds until now during which texts were in flight."""
        self._advance()
        return self._busy

    def enter(self, text: Hashable, tokens: int) -> None:
        """Begin a text whose prompt has this many tokens."""
        self._advance()
        self._entries[text] = _Entry(max(1, tokens), self._per_token)
        self._tokens += max(1, tokens)

    def add(self, text: Hashable, tokens: int) -> None:
        """Add this many arrived output tokens to a text."""
        self._advance()
        entry = self._entries[text]
        entry.settle(self._per_token)
        entry.tokens += tokens
        self._tokens += tokens

    def leave(self, text: Hashable) -> float:
        """End a text; returns its seconds."""
        self._advance()
        entry = self._entries.pop(text)
        entry.settle(self._per_token)
        self._tokens -= entry.tokens
        return entry.seconds

    def _advance(self) -> None:
        now = self._clock()
        if self._tokens:
            self._busy += now - self._at
            self._per_token += (now - self._at) / self._tokens
        self._at = now


class _Entry:
    """A text in flight: its tokens, and its seconds until it was last settled."""

    __slots__ = ("_settled", "seconds", "tokens")

    def __init__(self, tokens: int, per_token: float) -> None:
        self.tokens, self.seconds, self._settled = tokens, 0.0, per_token

    def settle(self, per_token: float) -> None:
        self.seconds += self.tokens * (per_token - self._settled)
        self._settled = per_token
