"""How often guesses were right, by their source, by the length of the match, and by how many places agree."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from thothy_ai.engine.api.step import Float64, Int64

_LENGTHS = np.array((1, 2, 3, 4, 6, 8, 12, 16, 24, 32))
_SHARES = 4
_SOURCES = 2  # a sequence's own text, and other texts of its profile
_CLASSES = _SOURCES * (len(_LENGTHS) + 1) * _SHARES
_FIRST_CHANCE = 0.3  # of an untried class
_WEIGHT = 4.0  # trials' worth of the chance over all profiles
_FORGET = 1024.0  # trials of a class after which its counts are halved, since outputs change


def classes(source: Int64, lengths: Int64, shares: Float64) -> Int64:
    """The classes of guesses made after matches of `lengths` tokens, of which the guessed token follows at `shares` of
    the matching places; the shapes broadcast.
    """
    lengths = np.searchsorted(_LENGTHS, lengths, side="right")
    found: Int64 = (source * (len(_LENGTHS) + 1) + lengths) * _SHARES + (shares * (_SHARES - 1e-9)).astype(np.int64)
    return found


class Chances:
    """How often guesses of each class were right, in each of `profiles` profiles. Owned by the drafter."""

    def __init__(self, profiles: int) -> None:
        self._right, self._tried = np.zeros((2, profiles + 1, _CLASSES))  # the last row is for all profiles together

    def of(self, profiles: Int64, guessed: Int64) -> Float64:
        """The chances of guesses of classes `guessed` [N, K] in profiles [N]. With few trials, a profile's chances are
        close to those over all profiles.
        """
        everywhere = (self._right[-1] + _WEIGHT * _FIRST_CHANCE) / (self._tried[-1] + _WEIGHT)
        right, tried = (counts[profiles[:, None], guessed] for counts in (self._right, self._tried))
        chances: Float64 = (right + _WEIGHT * everywhere[guessed]) / (tried + _WEIGHT)
        return chances

    def learn(self, profiles: Sequence[int], guessed: Sequence[int], right: Sequence[bool]) -> None:
        """Count guesses [N] as `right` or wrong."""
        for these in ([*profiles], [-1] * len(profiles)):
            np.add.at(self._tried, (these, guessed), 1.0)
            np.add.at(self._right, (these, guessed), np.array(right, np.float64))
        often = self._tried > _FORGET
        self._tried[often] /= 2
        self._right[often] /= 2

    def forget(self, profile: int) -> None:
        """Clear a profile's counts, so that another profile can take its number."""
        self._right[profile] = self._tried[profile] = 0.0
