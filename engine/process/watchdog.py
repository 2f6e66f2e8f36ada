"""Notices an engine that stands still: requests are in flight, and no step ends."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

_EVERY_SECONDS = 5.0


async def stalled(steps: Callable[[], int], in_flight: Callable[[], int], seconds: float) -> None:
    """Return when requests have been in flight for `seconds` in which no step ended; else never.

    `steps` counts those that ended so far, `in_flight` the requests that wait for one.
    """
    seen, since = steps(), time.monotonic()
    while time.monotonic() - since < seconds:
        await asyncio.sleep(min(_EVERY_SECONDS, seconds / 4))
        now = steps()
        if now != seen or not in_flight():
            seen, since = now, time.monotonic()
