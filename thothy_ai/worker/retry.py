"""Asks Postgres again until it answers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from thothy_ai.errors import DatabaseError

logger = logging.getLogger(__name__)

MIN_PAUSE, MAX_PAUSE = 0.2, 5.0

T = TypeVar("T")


async def insist(
    what: str, ask: Callable[[], Awaitable[T]], final: Callable[[DatabaseError], bool] = lambda _: False
) -> T:
    """What `ask` returns once it does, with backoff between tries; raises only what is `final`."""
    pause = MIN_PAUSE
    while True:
        try:
            return await ask()
        except DatabaseError as error:
            if final(error):
                raise
            logger.warning("%s waits: %s", what, error)
        await asyncio.sleep(pause)
        pause = min(pause * 2, MAX_PAUSE)
