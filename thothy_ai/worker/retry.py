"""Retries a query until Postgres answers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from thothy_ai.errors import DatabaseError

logger = logging.getLogger(__name__)

MIN_PAUSE, MAX_PAUSE = 0.2, 5.0  # seconds

T = TypeVar("T")


async def retry_until_answered(
    what: str, ask: Callable[[], Awaitable[T]], is_final: Callable[[DatabaseError], bool] = lambda _: False
) -> T:
    """The result of `ask`, with exponential backoff between tries. Raises only errors that are final."""
    pause = MIN_PAUSE
    while True:
        try:
            return await ask()
        except DatabaseError as error:
            if is_final(error):
                raise
            logger.warning("%s is retried: %s", what, error)
        await asyncio.sleep(pause)
        pause = min(pause * 2, MAX_PAUSE)
