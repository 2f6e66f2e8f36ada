"""How often guesses were right, by where they come from, by the length of the match, and by its agreement."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from thothy_ai.engine.api.step import Float64, Int64

_LENGTHS = np.array((1, 2, 3, 4, 6, 8, 12, 16, 24, 32))
_SHARES = 4
_SOURCES = 2  # a sequence's own text, and others of its profile
_CLASSES = _SOURCES * (len(_LENGTHS) + 1) * _SHARES
_FIRST_CHANCE = 0.3  # of a class that was never tried
_WEIGHT = 4.0  # how many trials the chance in all profiles counts for
_FORGET = 1024.0  # trials of a class, at which they are halved: outputs change


def classes(source: Int64, lengths: Int64, shares: Float64) -> Int64:
    """The classes of guesses after so many matching tokens, which stand at these `shares` of the places; the
    shapes broadcast.
    """
    lengths = np.searchsorted(_LENGTHS, lengths, side="right")
    found: Int64 = (source * (len(_LENGTHS) + 1) + lengths) * _SHARES + (shares * (_SHARES - 1e-9)).astype(np.int64)
    return found


class Chances:
    """How often guesses of each class were right, in each of so many profiles. Owned by the drafter."""

    def __init__(self, profiles: int) -> None:
        self._right, self._tried = np.zeros((2, profiles + 1, _CLASSES))  # in the last row, of all profiles

    def of(self, profiles: Int64, guessed: Int64) -> Float64:
        """The chances of guesses of classes `guessed` [N, K] in profiles [N]; with few trials, as in all profiles."""
        everywhere = (self._right[-1] + _WEIGHT * _FIRST_CHANCE) / (self._tried[-1] + _WEIGHT)
        right, tried = (counts[profiles[:, None], guessed] for counts in (self._right, self._tried))
        chances: Float64 = (right + _WEIGHT * everywhere[guessed]) / (tried + _WEIGHT)
        return chances

    def learn(self, profiles: Sequence[int], guessed: Sequence[int], right: Sequence[bool]) -> None:
        """Count guesses [N] that were `right` or not."""
        for these in ([*profiles], [-1] * len(profiles)):
            np.add.at(self._tried, (these, guessed), 1.0)
            np.add.at(self._right, (these, guessed), np.array(right, np.float64))
        often = self._tried > _FORGET
        self._tried[often] /= 2
        self._right[often] /= 2

    def forget(self, profile: int) -> None:
        """Begin with another profile in this one's place."""
        self._right[profile] = self._tried[profile] = 0.0
