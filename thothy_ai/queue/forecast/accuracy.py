"""How wrong earlier forecasts were: their median error, and how often the queue was empty by their ninth decile."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median

DRAINS = 20  # that are looked back on
MIN_SECONDS = 5.0  # a shorter time to empty has no meaningful relative error
MIN_DRAINS, MIN_HELD = 5, 0.75  # before a ninth decile is believed: it may hold in fewer cases by chance


@dataclass(frozen=True, slots=True)
class Past:
    """A forecast that has ended, in seconds. `disturbed`: jobs arrived, or the queue was paused."""

    drain: float
    p50: float
    p90: float
    actual: float
    disturbed: bool = False


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Over `forecasts` of `drains`; `disturbed` others were left out. None where there is nothing to judge by.

    `median_error`: of |p50 - actual| / actual. `p90_held`: the share whose actual time was at most p90.
    """

    drains: int
    forecasts: int
    disturbed: int
    median_error: float | None
    p90_held: float | None

    @property
    def p90_believed(self) -> bool:
        """Whether enough drains have shown that p90 holds about as often as it says."""
        return self.drains >= MIN_DRAINS and self.p90_held is not None and self.p90_held >= MIN_HELD


def accuracy(past: Iterable[Past]) -> Accuracy:
    """The accuracy of these forecasts; one that stood a moment before the queue was empty is not judged."""
    judged = [each for each in past if each.actual >= MIN_SECONDS]
    clean = [each for each in judged if not each.disturbed]
    return Accuracy(
        drains=len({each.drain for each in clean}),
        forecasts=len(clean),
        disturbed=len(judged) - len(clean),
        median_error=median(abs(each.p50 - each.actual) / each.actual for each in clean) if clean else None,
        p90_held=sum(each.actual <= each.p90 for each in clean) / len(clean) if clean else None,
    )
