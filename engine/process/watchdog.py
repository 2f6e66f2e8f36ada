"""Detects an engine that hangs: requests are in flight, and it makes no progress."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

_MAX_INTERVAL_SECONDS = 5.0


async def stalled(progress: Callable[[], int], in_flight: Callable[[], int], seconds: float) -> None:
    """Return once requests have been in flight for `seconds` without progress; otherwise run until cancelled.

    `progress` is a number that changes as work proceeds, `in_flight` the number of unfinished requests.
    """
    seen, since = progress(), time.monotonic()
    while time.monotonic() - since < seconds:
        await asyncio.sleep(min(_MAX_INTERVAL_SECONDS, seconds / 4))
        now = progress()
        if now != seen or not in_flight():
            seen, since = now, time.monotonic()
