"""`Lane`: many jobs share the engine; one that may kill it runs alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Lane:
    """A readers-writer lock of one event loop; whoever wants to be alone goes before those that share.

    It holds within one worker process: other workers of the same engine know nothing of it.
    """

    def __init__(self) -> None:
        self._changed = asyncio.Condition()
        self._sharing = 0
        self._alone = False
        self._waiting_alone = 0

    @asynccontextmanager
    async def shared(self) -> AsyncIterator[None]:
        """Beside others."""
        if self._alone or self._waiting_alone:
            async with self._changed:
                await self._changed.wait_for(lambda: not self._alone and not self._waiting_alone)
        self._sharing += 1
        try:
            yield
        finally:
            self._sharing -= 1
            if self._waiting_alone and not self._sharing:
                await self._wake()

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """Once nobody else is left, and keeping everybody out meanwhile."""
        self._waiting_alone += 1
        try:
            async with self._changed:
                await self._changed.wait_for(lambda: not self._alone and not self._sharing)
                self._alone = True
        except asyncio.CancelledError:
            self._waiting_alone -= 1
            await self._wake()
            raise
        self._waiting_alone -= 1
        try:
            yield
        finally:
            self._alone = False
            await self._wake()

    async def _wake(self) -> None:
        async with self._changed:
            self._changed.notify_all()
