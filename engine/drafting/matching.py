"""Predicts a text's next token by the places where its last tokens stand in a text.

The places after the longest suffix that occurs are those that a suffix automaton would find. They are searched for
instead: comparing 2,000 tokens with one takes 2 us, and nothing is built when a sequence begins.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from thothy_ai.engine.api.step import Int32

LONGEST = 32  # tokens of a suffix that are compared
_COUNTED = 32  # of the places that are found, the latest, by which the next token is chosen
_END = -1  # between texts

Places = NDArray[np.int64]


class Tokens:
    """A text that grows. Before it has more than `most` tokens, the older half is forgotten."""

    def __init__(self, most: int) -> None:
        self._most, self._count = most, 0
        self._buffer = np.empty(256, np.int32)

    @property
    def tokens(self) -> Int32:
        """All of them [n], valid until some are added."""
        return self._buffer[: self._count]

    def add(self, tokens: list[int]) -> None:
        """Add tokens at the end."""
        tokens = tokens[-self._most :]
        if self._count + len(tokens) > self._most:
            keep = min(self._count, self._most // 2, self._most - len(tokens))
            kept = self._buffer[self._count - keep : self._count].copy()
            self._buffer[: len(kept)], self._count = kept, len(kept)
        if (needed := self._count + len(tokens)) > len(self._buffer):
            self._buffer = np.concatenate((self.tokens, np.empty(needed, np.int32)))
        self._buffer[self._count : needed] = tokens
        self._count = needed

    def end(self) -> None:
        """What is added from now on does not continue what is there."""
        self.add([_END])


class Predicted(NamedTuple):
    """A token, and the share of the places that it stands at."""

    token: int
    share: float


class Match(NamedTuple):
    """The `places` [P] in a text at which the next token stands after a suffix of `length` tokens; none, if P is 0."""

    text: Int32
    places: Places
    length: int

    @classmethod
    def of(cls, text: Int32, last: Int32) -> Match:
        """Where the longest suffix of the tokens `last` stands in a text, before the text's end."""
        if not len(last):
            return cls(text, np.empty(0, np.int64), 0)
        places = np.flatnonzero(text[:-1] == last[-1]) + 1
        length = min(1, len(places))
        while 0 < length < min(len(last), LONGEST):
            longer = places[places > length]
            longer = longer[text[longer - length - 1] == last[-length - 1]]
            if not len(longer):
                break
            places, length = longer, length + 1
        return cls(text, places, length)

    def predict(self) -> Predicted | None:
        """The token that stands at most of the latest places; of several, the one that stood there last."""
        if not len(self.places):
            return None
        found = self.text[self.places[-_COUNTED:]].tolist()
        if len(found) == 1:  # mostly
            return None if found[0] == _END else Predicted(found[0], 1.0)
        [(token, count)] = Counter(reversed(found)).most_common(1)
        return None if token == _END else Predicted(token, count / len(found))

    def after(self, token: int) -> Match:
        """The match once the text has this token, too."""
        if len(self.places) == 1 and self.text[self.places[0]] == token and self.places[0] + 1 < len(self.text):
            return Match(self.text, self.places + 1, self.length + 1)
        if not len(self.places):
            return self
        places = self.places[self.text[self.places] == token] + 1
        return Match(self.text, places[places < len(self.text)], self.length + 1)
