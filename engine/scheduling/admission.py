"""Learnt output lengths: what a new sequence is expected to need, so that admission never reserves by max_tokens."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterable
from typing import NamedTuple

_PRIOR = 0.5  # of max_tokens, until a sequence of the profile has finished
_GAIN = 0.1
_MARGIN = 1.0  # standard deviations above the mean
_MAX_PROFILES = 256  # they are free text from clients


class _Length(NamedTuple):
    mean: float
    variance: float


class LengthEstimator:
    """Output length by profile: exponentially weighted mean and variance (Finch, 2009).

    Of more than `_MAX_PROFILES` profiles, those observed last are known.
    """

    def __init__(self) -> None:
        self._learnt: OrderedDict[str, _Length] = OrderedDict()  # the least recently observed first

    def observe(self, profile: str, output_tokens: int) -> None:
        """Learn from a finished sequence."""
        known = self._learnt.pop(profile, None)
        if known is None:
            self._learnt[profile] = _Length(float(output_tokens), (output_tokens / 4) ** 2)
            if len(self._learnt) > _MAX_PROFILES:
                self._learnt.popitem(last=False)
            return
        delta = output_tokens - known.mean
        variance = (1 - _GAIN) * (known.variance + _GAIN * delta**2)
        self._learnt[profile] = _Length(known.mean + _GAIN * delta, variance)

    def mean(self, profile: str | None) -> float:
        """Output tokens as learnt; infinite for an unknown profile, which may be longer than all known ones."""
        known = None if profile is None else self._learnt.get(profile)
        return math.inf if known is None else known.mean

    def longest(self, profiles: Iterable[str]) -> str | None:
        """The profile with the longest expected output; None if that is an unknown one."""
        longest = max(profiles, key=self.mean)
        return longest if longest in self._learnt else None

    def expect(self, profile: str, max_tokens: int) -> int:
        """Output tokens to reserve for, between 1 and `max_tokens`."""
        known = self._learnt.get(profile)
        if known is None:
            return max(1, math.ceil(_PRIOR * max_tokens))
        expected = math.ceil(known.mean + _MARGIN * math.sqrt(known.variance))
        return max(1, min(max_tokens, expected))
