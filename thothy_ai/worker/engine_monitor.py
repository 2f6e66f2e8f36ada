"""`EngineMonitor`: tracks whether the engine answers, and in which session.

It records that this worker reaches the engine; the engine records its own session (`registration/`). It also fetches
data that only the engine has: the usage of attempts whose worker vanished.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING
from uuid import UUID

from thothy_ai.engine.api import EngineInfo, GenerationRequest
from thothy_ai.engine.api.errors import ConnectionLostError, EngineError, EngineLostError
from thothy_ai.errors import DatabaseError
from thothy_ai.queue.dispatches import ANSWER_SECONDS
from thothy_ai.worker.record.store import JobStore
from thothy_ai.worker.record.unbilled import UnbilledUsage

if TYPE_CHECKING:  # the client's module is only needed where a client is made
    from thothy_ai.engine.serving.client import EngineClient, Generation

logger = logging.getLogger(__name__)

MIN_PAUSE, MAX_PAUSE = 0.2, 2.0  # seconds: a check must follow well within `SILENCE_SECONDS`
RECORD_PAUSE = 1.0  # seconds, before what could not be recorded is recorded again
SILENCE_SECONDS = 10.0  # until a silent engine counts as dead


class EngineAwayError(Exception):
    """The engine answers, but accepts nothing new in this session."""


class EngineMonitor:
    """Owns the connection's state. Jobs are claimed only while the engine is ready."""

    def __init__(self, client: EngineClient, store: JobStore, unbilled: UnbilledUsage, interval_seconds: float) -> None:
        self._client = client
        client.on_lost = self.recheck  # a new connection may lead to a new engine: check it before anything is sent
        self._store = store
        self._unbilled = unbilled
        self._interval_seconds = interval_seconds
        self._ready = asyncio.Event()
        self._recheck_requested = asyncio.Event()
        self._stopping = asyncio.Event()
        self._refused: str | None = None
        self._away_since: float | None = None  # monotonic
        self._seen_at = time.monotonic()  # or when monitoring began
        self.info: EngineInfo | None = None  # of the engine that answered last
        self.session_id: UUID | None = None
        self._vocabulary: tuple[UUID | None, tuple[bytes, ...]] = (None, ())  # of this session

    async def ready(self) -> None:
        """Wait until the engine answers."""
        await self._ready.wait()

    async def ready_unless_stopping(self) -> bool:
        """Wait until the engine answers (True), or accepts nothing new, and the dispatcher knows it (False)."""
        waits = [asyncio.create_task(event.wait()) for event in (self._ready, self._stopping)]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        return self._ready.is_set()

    @property
    def is_ready(self) -> bool:
        """Whether the engine answered when it was last checked."""
        return self._ready.is_set()

    @property
    def model_name(self) -> str:
        """The name by which jobs ask for the model of the last engine that answered; empty before that."""
        return self.info.model_name if self.info is not None else ""

    async def submit(self, request: GenerationRequest) -> Generation:
        """Send a request, unless the engine was lost and has not been checked since. Raises `EngineLostError`."""
        if not self.is_ready:
            raise ConnectionLostError("the engine was lost since it was last checked")
        try:
            return await self._client.submit(request)
        except EngineLostError:
            self.recheck()
            raise

    async def vocabulary(self) -> tuple[bytes, ...]:
        """The bytes of each token of the model, asked for once per session. Raises `EngineError`."""
        if self._vocabulary[0] != self.session_id:
            self._vocabulary = (self.session_id, await self._client.vocabulary())
        return self._vocabulary[1]

    @property
    def away_seconds(self) -> float:
        """Seconds since the engine last answered; 0 while it answers."""
        return 0.0 if self.is_ready else time.monotonic() - self._seen_at

    def recheck(self) -> None:
        """Stop claiming and check now whether the engine was lost."""
        self._ready.clear()
        self._recheck_requested.set()

    async def outlived(self, session_id: UUID | None) -> bool:
        """Whether the engine still runs this session although a request was lost: then only the connection broke.

        It requests no check: where a connection broke, `on_lost` has done so, and one for each of many lost requests
        would hold up what is sent to the next session.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(SILENCE_SECONDS):
                await self.ready()
                return session_id is not None and self.session_id == session_id
        return False

    def may_have_begun(self, session_id: UUID | None, request_ids: Sequence[str]) -> bool:
        """Whether a dead engine session may have been working on one of these requests."""
        return session_id is None or self._client.may_have_begun(str(session_id), request_ids)

    def await_new_session(self, ended: UUID | None) -> None:
        """Session `ended` accepts nothing new: stop claiming, unless the next one has begun."""
        if ended == self.session_id:
            self._refused = str(self.session_id) if self.session_id else None
            self.recheck()
            self._stopping.set()

    async def run(self) -> None:
        """Check the engine until cancelled: every interval while it answers, with backoff while it does not."""
        while True:
            self._recheck_requested.clear()  # before the check: a request made while it is recorded is not lost
            try:
                info = await self._check()
            except (EngineError, EngineAwayError, OSError, TimeoutError) as error:
                pause = self._set_away(error)
            else:
                if self._recheck_requested.is_set():  # lost meanwhile; the session may have changed
                    continue
                pause = await self._set_ready(info)
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._recheck_requested.wait()

    async def _check(self) -> EngineInfo:
        async with asyncio.timeout(ANSWER_SECONDS):
            await self._client.start()
            info = await self._client.info()
            stats = await self._client.stats()
            if stats.abandoned.kept:
                self._unbilled.add_abandoned(await self._client.take_abandoned_usage())
        if info.session_id == self._refused:
            raise EngineAwayError("it accepts no new requests")
        return info

    async def _set_ready(self, info: EngineInfo) -> float:
        """Note that the engine is ready. Returns seconds until the next check: few until this worker's presence is
        recorded, since no jobs are sent here before.
        """
        if not self._ready.is_set():
            logger.info("connected to engine: %s on %s", info.model, info.device)
            if not info.registered:
                logger.warning("engine %s gets no jobs: it was started without THOTHY_DATABASE_URL", info.name)
        self.info = info
        self.session_id = UUID(info.session_id)
        self._away_since = None
        self._seen_at = time.monotonic()
        self._stopping.clear()
        self._ready.set()
        try:
            is_noted = await self._store.show_presence(info.session_id)
        except DatabaseError as error:
            logger.warning("cannot note that this worker reaches engine session %s: %s", info.session_id, error)
            is_noted = False
        return self._interval_seconds if is_noted else min(self._interval_seconds, RECORD_PAUSE)

    def _set_away(self, error: Exception) -> float:
        """Note that the engine does not answer. Returns seconds until the next check: as long as it has been silent,
        however many checks were requested.
        """
        now = time.monotonic()
        if self._away_since is None:
            self._away_since = now
            logger.warning("engine is away; claiming stops until it is back: %s", error or type(error).__name__)
        self._ready.clear()
        return min(max(MIN_PAUSE, now - self._away_since), MAX_PAUSE)
