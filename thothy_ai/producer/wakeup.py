"""`Wakeup`: how a thread wakes a task."""

from __future__ import annotations

import asyncio
from contextlib import suppress


class Wakeup:
    """An event that another thread sets and one task waits for."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()

    def set(self) -> None:
        """Wake the task; from any thread."""
        with suppress(RuntimeError):  # the loop was closed meanwhile
            self._loop.call_soon_threadsafe(self._event.set)

    async def wait(self, seconds: float) -> bool:
        """Wait at most so long; whether it was set. It is unset afterwards."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._event.wait()
        was_set = self._event.is_set()
        self._event.clear()
        return was_set
