"""Detects an engine that hangs: requests are in flight, and it makes no progress.

How long it may stand still is learnt from how long it has stood still before. A long first step that compiles kernels,
and a CPU that takes seconds per step, need minutes of patience; a GPU whose steps take a fifth of a second does not.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

_MAX_INTERVAL_SECONDS = 2.0
_KNOWN_AFTER_STEPS = 100  # before, kernels may be compiled that the warm-up did not need
_TIMES_LONGEST = 20  # a step that takes as much longer than any before it hangs
_MIN_SECONDS = 60.0  # enough to compile what is needed late, and for a machine that swaps


class Stillness:
    """How long an engine has stood still, by looks at it; `most` is the longest it ever may, in seconds."""

    def __init__(self, progress: int, most: float) -> None:
        self._progress, self._most = progress, most
        self._steps = 0
        self._still = self._longest = 0.0

    @property
    def patience(self) -> float:
        """Seconds without progress after which it hangs."""
        if self._steps < _KNOWN_AFTER_STEPS:
            return self._most
        return min(self._most, max(_MIN_SECONDS, _TIMES_LONGEST * self._longest))

    def hangs(self, progress: int, in_flight: int, seconds: float) -> bool:
        """Look at it, `seconds` after the last look."""
        self._still += seconds
        if progress != self._progress:
            self._longest = max(self._longest, self._still)  # of all steps in between: the longest possible
            self._steps += abs(progress - self._progress)
            self._progress, self._still = progress, 0.0
        elif not in_flight:
            self._still = 0.0
        return self._still >= self.patience


async def stalled(progress: Callable[[], int], in_flight: Callable[[], int], seconds: float) -> float:
    """Return once requests have been in flight without progress for too long, at most `seconds`: how long that was.

    `progress` is a number that changes as work proceeds, `in_flight` the number of unfinished requests. A look that
    comes late, since this process was stopped or the machine is busy, counts as one in time.
    """
    interval = min(_MAX_INTERVAL_SECONDS, seconds / 4)
    stillness, last = Stillness(progress(), seconds), time.monotonic()
    while True:
        await asyncio.sleep(interval)
        now = time.monotonic()
        if stillness.hangs(progress(), in_flight(), min(now - last, 2 * interval)):
            return stillness.patience
        last = now
