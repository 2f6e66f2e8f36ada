"""How often predictions were right, by where they come from, by the length of the match, and by its agreement."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from typing import NamedTuple

_LENGTHS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
_SHARES = 4
_FIRST_CHANCE = 0.3  # of a class that was never tried
_WEIGHT = 4.0  # how many trials the chance of the wider class counts for
_FORGET = 1024.0  # trials of a class, at which they are halved: outputs change


class Class(NamedTuple):
    """Of a prediction: by `source` (a sequence's own text, or others of its profile), length and agreement."""

    profile: str
    source: str
    length: int
    share: int

    @classmethod
    def of(cls, profile: str, source: str, length: int, share: float) -> Class:
        """Of a match of so many tokens, at `share` of whose places the predicted token stands."""
        return cls(profile, source, bisect_right(_LENGTHS, length), int(share * (_SHARES - 1e-9)))


class Chances:
    """How often guesses of each class were right. Owned by the drafter."""

    def __init__(self) -> None:
        self._counts: dict[Class, list[float]] = defaultdict(lambda: [0.0, 0.0])  # right, tried

    def of(self, each: Class) -> float:
        """The chance of a prediction of this class; with few trials, as in other profiles."""
        everywhere = self._mean(each._replace(profile=""), _FIRST_CHANCE)
        return self._mean(each, everywhere)

    def learn(self, each: Class, *, right: bool) -> None:
        for key in (each, each._replace(profile="")):
            counts = self._counts[key]
            counts[0] += right
            counts[1] += 1
            if counts[1] > _FORGET:
                counts[0], counts[1] = counts[0] / 2, counts[1] / 2

    def _mean(self, key: Class, otherwise: float) -> float:
        right, tried = self._counts.get(key, (0.0, 0.0))
        return (right + _WEIGHT * otherwise) / (tried + _WEIGHT)
