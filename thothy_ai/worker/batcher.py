"""`Gather`: collects what arrives one by one, so that one statement serves many."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable
from typing import Generic, TypeVar

T = TypeVar("T")


class Gather(Generic[T]):
    """A box that any thread puts into and one task of `loop` empties.

    `take` waits for a first item, then `linger_seconds` for its companions.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, linger_seconds: float, most: int) -> None:
        self._loop = loop
        self._linger_seconds = linger_seconds
        self._most = most
        self._lock = threading.Lock()
        self._items: list[T] = []
        self._filled = asyncio.Event()

    def put(self, items: Iterable[T]) -> None:
        """Put items in. Only the first of a batch wakes the loop."""
        with self._lock:
            first = not self._items
            self._items.extend(items)
            wake = first and bool(self._items)
        if wake:
            self._loop.call_soon_threadsafe(self._filled.set)

    async def take(self) -> list[T]:
        """The oldest items, at least one and `most` at most."""
        await self._filled.wait()
        if len(self._items) < self._most:
            await asyncio.sleep(self._linger_seconds)
        with self._lock:
            taken, self._items = self._items[: self._most], self._items[self._most :]
            if not self._items:
                self._filled.clear()
        return taken

    def waiting(self) -> list[T]:
        """A copy of what is in the box."""
        with self._lock:
            return list(self._items)
