"""`GroupSizes`: how many quarantined jobs run at once on one engine (`quarantine.py`)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self

MAX_LONE = 8  # jobs that must run alone, claimed at once: the engine is emptied once for all of them
ASSUMED_CAPACITY = 64  # of an earlier engine, which does not say its capacity


@dataclass(frozen=True, slots=True)
class GroupSizes:
    """The most jobs charged with one engine death that run at once on an engine, and the most charged with two.

    Of the jobs that must run alone, `lone` are claimed together; they run one after the other.
    """

    once: int
    twice: int
    lone: int = MAX_LONE

    @classmethod
    def of(cls, capacity: int) -> Self:
        """For an engine that runs at most `capacity` sequences at once, 0 if it does not say: half and root of that."""
        sequences = capacity or ASSUMED_CAPACITY
        return cls(max(1, sequences // 2), math.isqrt(sequences))
