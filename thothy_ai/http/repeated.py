"""`Repeated`: the door's periodic tasks, next to its requests."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress

log = logging.getLogger(__name__)

STOP_SECONDS = 5.0


class Repeated:
    """Runs a task periodically on the event loop that starts it. Errors are logged, since the next run may succeed."""

    def __init__(self, name: str, seconds: float, act: Callable[[], Awaitable[None]]) -> None:
        self._name, self._seconds, self._act = name, seconds, act
        self._stopped = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Run the task now, and periodically from then on."""
        await self._try()
        self._task = asyncio.create_task(self._repeat(), name=self._name)

    async def stop(self) -> bool:
        """End the task. A running one gets a moment to finish, since a thread cannot be cancelled. Returns whether it
        had begun.
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
