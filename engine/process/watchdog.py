"""Detects an engine that hangs: requests are in flight, and it makes no progress.

The permitted time without progress is learned from earlier ones. A long first step that compiles kernels, or a CPU that
takes seconds per step, needs minutes of patience; a GPU whose steps take a fifth of a second does not.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

_MAX_INTERVAL_SECONDS = 2.0
_KNOWN_AFTER_STEPS = 100  # until then, kernels that the warm-up missed may be compiled
_TIMES_LONGEST = 20  # a step that takes this many times longer than any before it hangs
_MIN_SECONDS = 60.0  # enough to compile late kernels, and for a machine that swaps


class Stillness:
    """Measures by polling how long an engine has stood still; `most` is the longest permitted time in seconds."""

    def __init__(self, progress: int, most: float) -> None:
        self._progress, self._most = progress, most
        self._steps = 0
        self._still = self._longest = 0.0

    @property
    def patience(self) -> float:
        """Seconds without progress after which the engine counts as hung."""
        if self._steps < _KNOWN_AFTER_STEPS:
            return self._most
        return min(self._most, max(_MIN_SECONDS, _TIMES_LONGEST * self._longest))

    def hangs(self, progress: int, in_flight: int, seconds: float) -> bool:
        """Whether the engine hangs; called `seconds` after the last call."""
        self._still += seconds
        if progress != self._progress:
            self._longest = max(self._longest, self._still)  # an upper bound of the steps in between
            self._steps += abs(progress - self._progress)
            self._progress, self._still = progress, 0.0
        elif not in_flight:
            self._still = 0.0
        return self._still >= self.patience


async def stalled(progress: Callable[[], int], in_flight: Callable[[], int], seconds: float) -> float:
    """Wait until requests have been in flight without progress for too long, at most `seconds`; returns how long.

    `progress` is a number that changes as work proceeds, `in_flight` the number of unfinished requests. A poll that is
    late because this process was stopped, or because the machine is busy, counts as punctual.
    """
    interval = min(_MAX_INTERVAL_SECONDS, seconds / 4)
    stillness, last = Stillness(progress(), seconds), time.monotonic()
    while True:
        await asyncio.sleep(interval)
        now = time.monotonic()
        if stillness.hangs(progress(), in_flight(), min(now - last, 2 * interval)):
            return stillness.patience
        last = now
