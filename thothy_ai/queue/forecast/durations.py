"""How long jobs run: log-normal durations, what is left of one that has run for a while, and when the last one ends."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

SCORES = (-1.2816, -0.5244, 0.0, 0.5244, 1.2816)  # deciles 1, 3, 5, 7 and 9 of a normal distribution
RARE = 1e-9
POINTS = 160  # of the grid on which the end is looked for


@dataclass(frozen=True, slots=True)
class Duration:
    """A log-normal duration. `mu`, `sigma`: mean and standard deviation of its logarithm, in seconds."""

    mu: float
    sigma: float

    @property
    def mean(self) -> float:
        return math.exp(self.mu + self.sigma**2 / 2)

    def survival(self, seconds: float) -> float:
        if seconds <= 0:
            return 1.0
        return 0.5 * math.erfc((math.log(seconds) - self.mu) / (self.sigma * math.sqrt(2)))

    def quantile(self, z: float) -> float:
        """The quantile of a normal score."""
        return math.exp(self.mu + self.sigma * z)

    def integral(self, seconds: float) -> float:
        """The integral of `survival` from 0 to `seconds`: the mean of the part before."""
        if seconds <= 0:
            return 0.0
        z = (math.log(seconds) - self.mu - self.sigma**2) / self.sigma
        return seconds * self.survival(seconds) + self.mean * 0.5 * math.erfc(-z / math.sqrt(2))

    def left(self, age: float) -> float:
        """The mean of what is left after `age`."""
        alive = self.survival(age)
        return (self.mean - self.integral(age)) / alive if alive > 1e-9 else self.mean * self.sigma

    @property
    def stationary_left(self) -> float:
        """The mean of what is left at a random moment of a long series: E[D²] / 2 E[D]."""
        return self.mean * math.exp(self.sigma**2) / 2


@dataclass(frozen=True, slots=True)
class Cell:
    """Jobs in flight that are alike. `age`: seconds since they were claimed; None: at a random moment of their run.

    `then`: another run that follows: a retry's, or a follow-up job's.
    """

    jobs: float
    duration: Duration
    age: float | None
    then: Duration | None = None

    def survival(self, seconds: float) -> float:
        """The probability that such a job, and what follows it, is not finished by then."""
        if self.then is None:
            return self.first(seconds)
        return sum(self.first(seconds - self.then.quantile(z)) for z in SCORES) / len(SCORES)

    def first(self, seconds: float) -> float:
        """The probability that the run in flight is not finished by then."""
        if seconds <= 0:
            return 1.0
        if self.age is None:
            return max(0.0, 1 - self.duration.integral(seconds) / self.duration.mean)
        before = self.duration.survival(self.age)
        if before < RARE:  # longer than any before: as long again, perhaps
            return 0.5 ** (seconds / self.age) if self.age else 0.0
        return self.duration.survival(self.age + seconds) / before

    def alive(self, seconds: float) -> float:
        """How many of them run at that time: of a cell with `then`, only those of the second run."""
        return self.jobs * (self.survival(seconds) - (self.first(seconds) if self.then else 0.0))


def last_end(cells: Sequence[Cell], pace: Callable[[float], float]) -> tuple[float, float]:
    """When the last job ends: the median and the ninth decile, in seconds.

    `pace(jobs)`: how much longer or shorter a second of a duration takes while `jobs` jobs are in flight.
    """
    cells = [cell for cell in cells if cell.jobs > 0]
    if not cells:
        return 0.0, 0.0
    # A time by which all have ended with a probability of at least 0.9, and not much more.
    horizon = max(cell.duration.mean for cell in cells) / 8
    while _all_done(cells, horizon) < 0.9 and horizon < 1e7:
        horizon *= 1.5
    step, elapsed, median = horizon / POINTS, 0.0, None
    for number in range(1, POINTS + 1):
        at = number * step
        done = _all_done(cells, at)
        elapsed += step * pace(sum(cell.alive(at - step / 2) for cell in cells))
        if median is None and done >= 0.5:
            median = elapsed
        if done >= 0.9:
            return median or elapsed, elapsed
    return median or elapsed, elapsed


def _all_done(cells: Sequence[Cell], at: float) -> float:
    """The probability that all have ended by then."""
    total = 0.0
    for cell in cells:
        left = cell.survival(at)
        if left >= 1:
            return 0.0
        total += cell.jobs * math.log1p(-left)
    return math.exp(total)
