"""`Batcher`: collects items that arrive one by one, so that one statement serves many."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable
from typing import Generic, TypeVar

T = TypeVar("T")


class Batcher(Generic[T]):
    """A queue that any thread puts into and one task of `loop` takes batches from.

    `take` waits for the first item, and then `linger_seconds` for more.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, linger_seconds: float, max_batch: int) -> None:
        self._loop = loop
        self._linger_seconds = linger_seconds
        self._max_batch = max_batch
        self._lock = threading.Lock()
        self._items: list[T] = []
        self._filled = asyncio.Event()

    def put(self, items: Iterable[T]) -> None:
        """Add items. Only the first item of a batch wakes the loop."""
        with self._lock:
            was_empty = not self._items
            self._items.extend(items)
            wake = was_empty and bool(self._items)
        if wake:
            self._loop.call_soon_threadsafe(self._filled.set)

    async def take(self) -> list[T]:
        """The oldest items: at least one, at most `max_batch`."""
        await self._filled.wait()
        if len(self._items) < self._max_batch:
            await asyncio.sleep(self._linger_seconds)
        with self._lock:
            taken, self._items = self._items[: self._max_batch], self._items[self._max_batch :]
            if not self._items:
                self._filled.clear()
        return taken

    def waiting(self) -> list[T]:
        """A copy of the items that have not been taken."""
        with self._lock:
            return list(self._items)
