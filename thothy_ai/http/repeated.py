"""`Repeated`: what the door does again and again beside its requests."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress

log = logging.getLogger(__name__)

STOP_SECONDS = 5.0


class Repeated:
    """Does something every so many seconds, on the loop that it is started in. What it raises is logged: the next time
    may succeed.
    """

    def __init__(self, name: str, seconds: float, act: Callable[[], Awaitable[None]]) -> None:
        self._name, self._seconds, self._act = name, seconds, act
        self._stopped = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Do it now, and again from then on."""
        await self._try()
        self._task = asyncio.create_task(self._repeat(), name=self._name)

    async def stop(self) -> bool:
        """End it; what is being done has a moment to finish: a thread cannot be cancelled. Returns whether it had
        begun.
        """
        if self._task is None:
            return False
        self._stopped.set()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._task, STOP_SECONDS)
        return True

    async def _repeat(self) -> None:
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopped.wait(), self._seconds)
            if self._stopped.is_set():
                return
            await self._try()

    async def _try(self) -> None:
        try:
            await self._act()
        except Exception:
            log.exception("%s: it failed, and is tried again in %g s", self._name, self._seconds)
