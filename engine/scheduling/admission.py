"""Learnt output lengths: what a sequence is expected to need, which is rarely max_tokens."""

from __future__ import annotations

import math
from collections import OrderedDict
from typing import NamedTuple

_GAIN = 0.1
_MARGIN = 1.0  # standard deviations above the mean
_MAX_PROFILES = 256  # they are free text from clients


class _Share(NamedTuple):
    mean: float
    variance: float


_PRIOR = _Share(0.5, 0.0)  # until a sequence of the profile has finished


class LengthEstimator:
    """Output as a share of `max_tokens`, by profile: exponentially weighted mean and variance (Finch, 2009).

    A share, since requests of one profile may differ in length, and `max_tokens` tells by how much (a translation is as
    long as its source). Of more than `_MAX_PROFILES` profiles, those observed last are known.
    """

    def __init__(self) -> None:
        self._learnt: OrderedDict[str, _Share] = OrderedDict()  # the least recently observed first

    def observe(self, profile: str, output_tokens: int, max_tokens: int) -> None:
        """Learn from a finished sequence."""
        share = output_tokens / max_tokens
        known = self._learnt.pop(profile, None) or _Share(share, (share / 4) ** 2)
        delta = share - known.mean
        variance = (1 - _GAIN) * (known.variance + _GAIN * delta**2)
        self._learnt[profile] = _Share(known.mean + _GAIN * delta, variance)
        if len(self._learnt) > _MAX_PROFILES:
            self._learnt.popitem(last=False)

    def expected(self, profile: str, max_tokens: int) -> float:
        """Output tokens to be expected; half of `max_tokens` if nothing is known of the profile."""
        return self._learnt.get(profile, _PRIOR).mean * max_tokens

    def reserved(self, profile: str, max_tokens: int) -> int:
        """Output tokens to reserve for, between 1 and `max_tokens`."""
        share = self._learnt.get(profile, _PRIOR)
        tokens = math.ceil((share.mean + _MARGIN * math.sqrt(share.variance)) * max_tokens)
        return max(1, min(max_tokens, tokens))
