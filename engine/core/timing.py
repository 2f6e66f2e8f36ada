"""Histograms of steps and of requests' waits. Owned by the core's counters.

A step costs two observations. A request costs three: when it starts, when its first token is sampled and when it ends.
Other tokens cost none.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Iterable
from typing import NamedTuple

from thothy_ai.engine.api.statistics import BOUNDS, HistogramStats, TimingStats
from thothy_ai.engine.scheduling.sequence import Sequence


class Histogram:
    """Counts values by bucket. `bounds` are the buckets' upper bounds, ascending; a value may equal its bound."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds, self._sum = bounds, 0.0
        self._counts = [0] * (len(bounds) + 1)

    def observe(self, value: float) -> None:
        self._sum += value
        self._counts[bisect_left(self._bounds, value)] += 1

    @property
    def stats(self) -> HistogramStats:
        """The sum and the counts so far."""
        return (self._sum, *self._counts)


class _First(NamedTuple):
    """When a sequence's first sampled token was read, in monotonic seconds, and how many tokens it had then."""

    at: float
    tokens: int


class Timing:
    """Fills `TimingStats`. Tracks sequences from their first step until they end."""

    def __init__(self) -> None:
        self._step_seconds = Histogram(BOUNDS["step_seconds"])
        self._step_sequences = Histogram(BOUNDS["step_sequences"])
        self._queue = Histogram(BOUNDS["queue_seconds"])
        self._first_token = Histogram(BOUNDS["first_token_seconds"])
        self._output_token = Histogram(BOUNDS["output_token_seconds"])
        self._unsampled: dict[Sequence, int] = {}  # running, without a sampled token; forced tokens so far
        self._sampled: dict[Sequence, _First] = {}

    @property
    def stats(self) -> TimingStats:
        return TimingStats(
            self._step_seconds.stats,
            self._step_sequences.stats,
            self._queue.stats,
            self._first_token.stats,
            self._output_token.stats,
        )

    def step(self, seconds: float, sequences: int) -> None:
        """Observe a step whose results were read."""
        self._step_seconds.observe(seconds)
        self._step_sequences.observe(sequences)

    def admitted(self, sequences: Iterable[Sequence]) -> None:
        """Observe sequences that have their first step."""
        now = time.monotonic()
        for sequence in sequences:
            self._unsampled[sequence] = sequence.reported
            if sequence.request.submitted_at:
                self._queue.observe(now - sequence.request.submitted_at)

    def reported(self) -> None:
        """Observe that a step's tokens were reported; for sequences without any before, they are the first."""
        if not self._unsampled:
            return
        now = time.monotonic()
        for sequence in [each for each, before in self._unsampled.items() if each.reported > before]:
            self._sampled[sequence] = _First(now, sequence.reported)
            del self._unsampled[sequence]
            if sequence.request.submitted_at:
                self._first_token.observe(now - sequence.request.submitted_at)

    def ended(self, sequence: Sequence) -> None:
        """Observe the end of a sequence, whether or not it ever ran."""
        self._unsampled.pop(sequence, None)
        first = self._sampled.pop(sequence, None)
        if first is not None and sequence.reported > first.tokens:
            self._output_token.observe((time.monotonic() - first.at) / (sequence.reported - first.tokens))
