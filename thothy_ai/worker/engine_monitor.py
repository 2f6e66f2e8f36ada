"""`Residency`: whether the engine can be asked, which of its lives this is, and its row in `engine_session`.

It also fetches what the engine alone knows: the costs of attempts whose worker vanished.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress
from typing import TYPE_CHECKING
from uuid import UUID

from thothy_ai.engine.api import EngineInfo, EngineStats
from thothy_ai.engine.errors import EngineError
from thothy_ai.errors import DatabaseError
from thothy_ai.worker.job_store import Ledger
from thothy_ai.worker.unbilled_usage import Arrears

if TYPE_CHECKING:  # the client's module is only needed where a client is made
    from thothy_ai.engine.client import EngineClient

logger = logging.getLogger(__name__)

ANSWER_SECONDS = 5.0
MIN_PAUSE, MAX_PAUSE = 0.2, 5.0
SILENCE_SECONDS = 10.0  # an engine that is not back by then has died, or might as well have


class EngineAwayError(Exception):
    """The engine answers, but takes nothing new in this life."""


class Residency:
    """Owns the connection's state. Jobs are claimed only while it is `ready`."""

    def __init__(self, client: EngineClient, ledger: Ledger, arrears: Arrears, interval_seconds: float) -> None:
        self._client = client
        client.on_lost = self.doubt  # behind a new connection there may be a new engine: nothing goes there unlooked
        self._ledger = ledger
        self._arrears = arrears
        self._interval_seconds = interval_seconds
        self._ready = asyncio.Event()
        self._doubted = asyncio.Event()
        self._refused: str | None = None
        self._pause = MIN_PAUSE
        self._here_at = time.monotonic()  # or when the looking began
        self.session_id: UUID | None = None

    async def ready(self) -> None:
        """Wait until the engine can be asked."""
        await self._ready.wait()

    @property
    def is_ready(self) -> bool:
        """Whether the engine answered when it was last asked."""
        return self._ready.is_set()

    @property
    def away_seconds(self) -> float:
        """How long the engine has not answered; 0 while it does."""
        return 0.0 if self.is_ready else time.monotonic() - self._here_at

    def doubt(self) -> None:
        """The engine was lost under a request: stop claiming and look."""
        self._ready.clear()
        self._doubted.set()

    async def outlived(self, session_id: UUID | None) -> bool:
        """Whether the engine of this session lives on, though a request on it was lost: only its connection was."""
        self.doubt()
        with suppress(TimeoutError):
            async with asyncio.timeout(SILENCE_SECONDS):
                await self.ready()
                return session_id is not None and self.session_id == session_id
        return False

    def refuse(self) -> None:
        """The engine takes nothing new: wait for its next life."""
        self._refused = str(self.session_id) if self.session_id else None
        self.doubt()

    async def run(self) -> None:
        """Look at the engine until cancelled: every interval while it answers, with backoff while it does not."""
        while True:
            self._doubted.clear()  # before the look: a doubt that comes up while it is recorded asks for another
            try:
                info, stats = await self._look()
            except (EngineError, EngineAwayError, OSError, TimeoutError) as error:
                pause = self._away(error)
            else:
                pause = self._here(info)
                await self._record(info, stats)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._doubted.wait(), pause)

    async def _look(self) -> tuple[EngineInfo, EngineStats]:
        async with asyncio.timeout(ANSWER_SECONDS):
            await self._client.start()
            info = await self._client.info()
            stats = await self._client.stats()
            if stats.abandoned.kept:
                self._arrears.take(await self._client.orphans())
        if info.session_id == self._refused:
            raise EngineAwayError("it is draining")
        return info, stats

    def _here(self, info: EngineInfo) -> float:
        if not self._ready.is_set():
            logger.info("the engine is there: %s on %s", info.model, info.device)
        self.session_id = UUID(info.session_id)
        self._pause = MIN_PAUSE
        self._here_at = time.monotonic()
        self._ready.set()
        return self._interval_seconds

    def _away(self, error: Exception) -> float:
        if self._pause == MIN_PAUSE:
            logger.warning("the engine is away, nothing is claimed until it is back: %s", error or type(error).__name__)
        self._ready.clear()
        pause, self._pause = self._pause, min(self._pause * 2, MAX_PAUSE)
        return pause

    async def _record(self, info: EngineInfo, stats: EngineStats) -> None:
        try:
            await self._ledger.record_session(info, stats)
        except DatabaseError as error:
            logger.warning("the engine's session cannot be recorded: %s", error)
