"""Learnt output lengths: what a new sequence is expected to need, so that admission never reserves by max_tokens."""

from __future__ import annotations

import math

_PRIOR = 0.5  # of max_tokens, until a profile has finished something
_GAIN = 0.1
_MARGIN = 1.0  # standard deviations above the mean


class LengthEstimator:
    """Output length by profile: exponentially weighted mean and variance (Finch, 2009)."""

    def __init__(self) -> None:
        self._mean: dict[str, float] = {}
        self._variance: dict[str, float] = {}

    def observe(self, profile: str, output_tokens: int) -> None:
        """Learn from a finished sequence."""
        mean = self._mean.get(profile)
        if mean is None:
            self._mean[profile], self._variance[profile] = float(output_tokens), (output_tokens / 4) ** 2
            return
        delta = output_tokens - mean
        self._mean[profile] = mean + _GAIN * delta
        self._variance[profile] = (1 - _GAIN) * (self._variance[profile] + _GAIN * delta**2)

    def mean(self, profile: str) -> float:
        """Output tokens as learnt; what has finished nothing yet may be longer than all that has."""
        return self._mean.get(profile, math.inf)

    def expect(self, profile: str, max_tokens: int) -> int:
        """Output tokens to reserve for, between 1 and `max_tokens`."""
        mean = self._mean.get(profile)
        if mean is None:
            return max(1, math.ceil(_PRIOR * max_tokens))
        expected = math.ceil(mean + _MARGIN * math.sqrt(self._variance[profile]))
        return max(1, min(max_tokens, expected))
