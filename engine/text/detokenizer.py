"""From tokens to text, incrementally: only whole characters, and no text that can still become a stop string."""

from __future__ import annotations

import codecs
from collections.abc import Sequence

from thothy_ai.engine.text.token_bytes import TokenBytes


class Detokenizer:
    """Decodes one request. Bytes of an incomplete character are held back, and dropped if it is never completed."""

    def __init__(self, vocabulary: TokenBytes) -> None:
        self._vocabulary = vocabulary
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._at_start = vocabulary.drops_first_space

    def push(self, tokens: Sequence[int]) -> str:
        """The text that is complete with these tokens."""
        text = self._decoder.decode(self._vocabulary.of(tokens))
        if self._at_start and text:
            self._at_start = False
            text = text.removeprefix(" ")
        return text


class StopStrings:
    """Finds the stop string that is complete first, and cuts the text before it.

    The result depends on the text alone, not on how it was split into pieces.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self._longest = max(map(len, stops), default=0)
        self._held = ""
        self.hit = False

    def push(self, text: str) -> str:
        """The text that is final now: it contains no stop string, and no suffix that a stop string begins with."""
        if not self._stops or self.hit:
            return "" if self.hit else text
        self._held += text
        found = ((self._held.find(stop), stop) for stop in self._stops)
        ends = [(start + len(stop), start) for start, stop in found if start >= 0]
        if ends:
            self.hit = True
            start = min(ends)[1]  # of those that end together, the longest
            decided, self._held = self._held[:start], ""
            return decided
        for count in range(min(self._longest - 1, len(self._held)), 0, -1):
            suffix = self._held[-count:]
            if any(stop.startswith(suffix) for stop in self._stops):
                return self._release(len(self._held) - count)
        return self.flush()

    def flush(self) -> str:
        """The text that was held back, at the end of the output."""
        return self._release(len(self._held))

    def _release(self, count: int) -> str:
        decided, self._held = self._held[:count], self._held[count:]
        return decided
