"""`Keys`: the callers behind API keys, as Postgres has them.

All keys are read every few seconds, so that a request waits for Postgres only if its key is new. While Postgres is
unreachable, the known keys stay valid for a while.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sqlalchemy import Engine
from starlette.types import Scope

from thothy_ai.db.api_keys import ApiKey, id_of, list_keys
from thothy_ai.db.connect import reaching
from thothy_ai.errors import DatabaseError
from thothy_ai.http.access import Access, Caller, header
from thothy_ai.http.errors import RETRY_SECONDS, ApiError
from thothy_ai.http.repeated import Repeated
from thothy_ai.http.threads import KEEPERS
from thothy_ai.settings import Settings

log = logging.getLogger(__name__)

READ_SECONDS = 2.0  # after which a revoked key is refused
NEW_SECONDS = 0.25  # between two reads because of unknown keys
KNOWN_SECONDS = 600.0  # for which keys stay valid while they cannot be read again
SCHEME = "bearer "


class Keys:
    """Implements `Access`. Until the first key is created, `before`, if given, identifies callers."""

    def __init__(self, settings: Settings, database: Engine, before: Access | None) -> None:
        self._settings, self._database, self._before = settings, database, before
        self._known: dict[str, ApiKey] = {}
        self._read_at = -math.inf
        self._tried_at = -math.inf  # when the last read began, whether or not it succeeded
        self._reading = asyncio.Lock()
        self._reads = Repeated("the reading of keys", READ_SECONDS, self._read_in_turn)
        self._running: dict[str, set[asyncio.Timeout]] = {}  # by key: running requests, which end if it is revoked

    def look(self) -> list[ApiKey]:
        """All keys in the database. Raises `DatabaseError`."""
        with reaching(self._settings), self._database.connect() as connection:
            return list_keys(connection)

    async def start(self) -> None:
        """Read the keys, and read them again from then on."""
        await self._reads.start()

    async def close(self) -> None:
        await self._reads.stop()

    async def caller(self, scope: Scope) -> Caller:
        if not self._known and self._before is not None and self._read_at > -math.inf:
            return await self._before.caller(scope)
        if time.monotonic() - self._read_at > KNOWN_SECONDS:
            raise _unavailable()
        given = header(scope, b"authorization")
        if given is None:
            raise _wrong("no API key was given: send it as `Authorization: Bearer thothy_...`")
        key = given[len(SCHEME) :].strip() if given.lower().startswith(SCHEME) else ""
        if (key_id := id_of(key)) is None:
            raise _wrong("the API key is not one of `thothy keys create`")
        if key_id not in self._known and not await self._read_anew():
            raise _unavailable()
        known = self._known.get(key_id)
        if known is None or not known.is_key(key):
            raise _wrong("the API key is not valid")
        if known.revoked_at is not None:
            raise _wrong("the API key was revoked")
        if self._left(known) <= 0:
            raise _wrong("the API key has expired")
        return Caller(known.tenant, known.id, known.scopes, known.limits)

    @asynccontextmanager
    async def while_valid(self, caller: Caller) -> AsyncIterator[None]:
        if (known := self._known.get(caller.key or "")) is None:
            yield
            return
        left = self._left(known)
        running = self._running.setdefault(known.id, set())
        try:
            async with asyncio.timeout(None if left == math.inf else left) as end:
                running.add(end)
                yield
        except TimeoutError:
            if end.expired():
                raise _wrong("the API key was revoked, or has expired") from None
            raise
        finally:
            running.discard(end)

    def _left(self, key: ApiKey) -> float:
        """Seconds until a key expires."""
        return math.inf if key.ends_in is None else key.ends_in - (time.monotonic() - self._read_at)

    async def _read_anew(self) -> bool:
        """Read the keys once more, not too soon after the last time; returns whether that succeeded. Callers share a
        read that begins after they called.
        """
        called = time.monotonic()
        async with self._reading:
            if self._tried_at < called:
                await asyncio.sleep(self._tried_at + NEW_SECONDS - called)
                await self._read()
            return self._read_at >= self._tried_at

    async def _read_in_turn(self) -> None:
        async with self._reading:
            await self._read()

    async def _read(self) -> None:
        """Keep what is known if it fails."""
        self._tried_at = time.monotonic()
        try:
            found = await asyncio.get_running_loop().run_in_executor(KEEPERS, self.look)
        except DatabaseError as error:
            log.warning("keys cannot be read: %s", error)
            return
        self._known = {key.id: key for key in found}
        self._read_at = time.monotonic()
        valid = {key.id for key in found if key.revoked_at is None}
        for key_id in list(self._running):
            for end in self._running[key_id] if key_id not in valid else ():
                end.reschedule(asyncio.get_running_loop().time())
            if not self._running[key_id]:
                del self._running[key_id]


def _unavailable() -> ApiError:
    return ApiError(503, "keys cannot be checked", code="keys_unavailable", retry_after=RETRY_SECONDS)


def _wrong(message: str) -> ApiError:
    return ApiError(401, message, code="invalid_api_key")
