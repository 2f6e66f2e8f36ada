"""Output lengths learned from finished sequences: a sequence rarely needs its max_tokens."""

from __future__ import annotations

import math
from collections import OrderedDict
from typing import NamedTuple

_GAIN = 0.1
_MARGIN = 1.0  # standard deviations above the mean
_MAX_PROFILES = 256  # profiles are free text from clients


class _Share(NamedTuple):
    mean: float
    variance: float


_PRIOR = _Share(0.5, 0.0)  # assumed until a sequence of the profile has finished


class LengthEstimator:
    """Output as a share of `max_tokens`, by profile: exponentially weighted mean and variance (Finch, 2009).

    Shares are used since requests of one profile can differ in length, and `max_tokens` tells by how much (a
    translation is as long as its source). Only the last `_MAX_PROFILES` observed profiles are kept.
    """

    def __init__(self) -> None:
        self._shares: OrderedDict[str, _Share] = OrderedDict()  # by profile, the least recently observed first

    def observe(self, profile: str, output_tokens: int, max_tokens: int) -> None:
        share = output_tokens / max_tokens
        known = self._shares.pop(profile, None) or _Share(share, (share / 4) ** 2)
        delta = share - known.mean
        variance = (1 - _GAIN) * (known.variance + _GAIN * delta**2)
        self._shares[profile] = _Share(known.mean + _GAIN * delta, variance)
        if len(self._shares) > _MAX_PROFILES:
            self._shares.popitem(last=False)

    def expected(self, profile: str, max_tokens: int) -> float:
        """Expected output tokens; half of `max_tokens` for an unknown profile."""
        return self._shares.get(profile, _PRIOR).mean * max_tokens

    def reserved(self, profile: str, max_tokens: int) -> int:
        """Output tokens to reserve for, between 1 and `max_tokens`."""
        share = self._shares.get(profile, _PRIOR)
        tokens = math.ceil((share.mean + _MARGIN * math.sqrt(share.variance)) * max_tokens)
        return max(1, min(max_tokens, tokens))
