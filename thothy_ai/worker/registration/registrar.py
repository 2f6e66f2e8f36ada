"""The registrar: one process per engine, which records that engine's session until it ends.

Started by the engine as `python -m thothy_ai.worker.registration.registrar`; messages come on standard input. It ends
with the engine: on a message that says so, or when its input ends. Its standard output is empty unless the engine must
not run, and then states the reason.
"""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

from thothy_ai.db.states import EndReason, EngineState
from thothy_ai.engine.api import AdapterInfo, EngineInfo, EngineStats
from thothy_ai.engine.api.errors import EngineError, EngineLostError
from thothy_ai.engine.serving.client import EngineClient, connect
from thothy_ai.engine.wire.codec import FrameBuffer
from thothy_ai.errors import DatabaseError
from thothy_ai.settings import Settings
from thothy_ai.telemetry import configure_logging
from thothy_ai.worker.registration.messages import (
    COUNTERS,
    MESSAGES,
    EngineEnded,
    Message,
    Ready,
    Registration,
    Stopping,
)
from thothy_ai.worker.registration.session_store import LiveEngine, SessionStore

log = logging.getLogger(__name__)

HEARTBEAT_SECONDS = 2.0
ANSWER_SECONDS = 4.0  # for the engine; one that does not answer has no heartbeat
LOOK_SECONDS = 0.5  # between two looks at another engine of the same name
END_SECONDS = 5.0  # to record the end if Postgres is unreachable; then the reaper does
MIN_PAUSE, MAX_PAUSE = 0.2, 5.0


class NameTakenError(Exception):
    """Another engine of this name is running."""


class Registrar:
    """Owns the known state of the engine, and its row."""

    def __init__(self, settings: Settings, registration: Registration, client: EngineClient | None = None) -> None:
        """`client`: one that the caller closes; without it, the engine's address is connected to."""
        self._token = settings.reveal_engine_token()
        self._store = SessionStore(settings)
        self._registration = registration
        self._ready: Ready | None = None
        self._stopping = False
        self._ended: EngineEnded | None = None
        self._changed = asyncio.Event()
        self._client, self._own_client = client, client is None
        self._info: EngineInfo | None = None
        self._counters: dict[str, float] = dict.fromkeys(COUNTERS, 0.0)
        self._stats: EngineStats | None = None
        self._adapters: dict[str, dict[str, Any]] = {name: {} for name in registration.adapters}
        self._counted_at: float | None = None  # when the engine was asked for them; None: it was not
        self._away = False  # Postgres or the engine is lost: logged once

    def hear(self, message: Message) -> None:
        match message:
            case Ready():
                self._ready = message
            case Stopping():
                self._stopping = True
            case EngineEnded():
                self._ended = self._ended or message
        self._changed.set()

    async def run(self) -> None:
        """Record the session until it has ended. Raises `NameTakenError` before it is recorded."""
        try:
            await self._register()
            while self._ended is None:
                self._changed.clear()  # before the heartbeat: what is said meanwhile is recorded at once
                await self._beat()
                await self._wait(HEARTBEAT_SECONDS)
            await self._end(self._ended)
        finally:
            if self._client is not None and self._own_client:
                await self._client.close()
            await self._store.close()

    async def _register(self) -> None:
        """Record the session for the first time. An engine that was killed counts as living until it is silent."""
        seen: LiveEngine | None = None
        pause = MIN_PAUSE
        while self._ended is None:
            try:
                other = await self._store.register(self._row())
            except DatabaseError as error:
                self._warn(error)
                await self._wait(pause)
                pause = min(2 * pause, MAX_PAUSE)
                continue
            if other is None:
                return
            if seen is not None and other != seen:
                where = f" at {other.address}" if other.address else ""
                raise NameTakenError(
                    f"an engine named {self._registration.engine_name} already runs on {other.machine}{where}: "
                    "set THOTHY_ENGINE_NAME to another name"
                )
            seen = other
            await self._wait(LOOK_SECONDS)

    async def _beat(self) -> None:
        """Record the state if the engine answers; an engine that hangs falls silent."""
        try:
            if self._ready is not None:  # while it loads, it is enough that its process is running
                if self._client is None:
                    self._client = connect(self._ready.address, self._token)
                async with asyncio.timeout(ANSWER_SECONDS):
                    await self._client.start()
                    info, asked_at = await self._client.info(), time.monotonic()
                    stats = await self._client.stats()
                    if stats.adapters.changes:  # an engine of 0.1 does not know the question
                        self._adapters = {each.name: _described(each) for each in await self._client.adapters()}
                if info.session_id != self._registration.session_id:
                    raise EngineLostError(f"another engine answers at {self._ready.address}")
                self._info, self._counted_at = info, asked_at
                self._counters = {name: getattr(stats.core, name) for name in COUNTERS}
                self._stats = stats
            await self._store.record(self._row())
        except (EngineError, DatabaseError, OSError, TimeoutError) as error:
            self._warn(error)
        else:
            self._away = False

    async def _end(self, ended: EngineEnded) -> None:
        if ended.counters:
            self._counters, self._counted_at = ended.counters, time.monotonic()
        until, pause = time.monotonic() + END_SECONDS, MIN_PAUSE
        while True:
            try:
                return await self._store.record(self._row())
            except DatabaseError as error:
                self._warn(error)
            if time.monotonic() + pause > until:
                return None
            await asyncio.sleep(pause)
            pause = min(2 * pause, MAX_PAUSE)

    async def _wait(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()

    def _warn(self, error: Exception) -> None:
        if not self._away and self._ended is None:
            log.warning("cannot record the engine session: %s", error or type(error).__name__)
        self._away = True

    def _row(self) -> dict[str, Any]:
        """The row's columns. Times are ages: the clocks of engine and Postgres may differ."""
        now, known, info = time.monotonic(), self._registration, self._info
        devices = info.devices if info is not None else known.devices
        heartbeat_age: float | None = 0.0
        if self._ended is not None:
            state = EngineState.ENDED
            # As old as its last counters; None if it was not asked for any.
            heartbeat_age = None if self._counted_at is None else now - self._counted_at
        elif self._stopping:
            state = EngineState.STOPPING
        else:
            state = EngineState.READY if self._ready is not None and info is not None else EngineState.LOADING
        return {
            "id": known.session_id,
            "engine_name": known.engine_name,
            "machine": known.machine,
            "address": self._ready.address if self._ready else "",
            "model_name": known.model_name,
            "adapters": json.dumps(self._adapters),
            "model": info.model if info else known.model_name,
            "device": info.device if info else known.device,
            "devices": list(devices),
            "gpus": info.num_gpus if info else len(devices),
            "declared": info is not None and info.declared_gpus > 0,
            "dtype": info.dtype if info else "",
            "num_blocks": info.num_blocks if info else 0,
            "block_size": info.block_size if info else 0,
            "capacity": info.capacity if info else known.capacity,
            "state": state.value,
            "age": now - known.started,
            "ready_age": None if self._ready is None else now - self._ready.at,
            "heartbeat_age": heartbeat_age,
            "end_reason": None if self._ended is None else self._ended.reason,
            **self._counters,
            **_gauges(None if self._ended else self._stats),
        }


def _described(adapter: AdapterInfo) -> dict[str, Any]:
    """The record of an adapter."""
    return {
        "digest": adapter.digest,
        "rank": adapter.rank,
        "num_bytes": adapter.num_bytes,
        "activated": bool(adapter.invocation_tokens),
    }


def _gauges(stats: EngineStats | None) -> dict[str, float | None]:
    """The engine's gauges at this moment; None where unknown: a foreign server shows only our own requests."""
    of = stats or EngineStats()
    return {
        "running_sequences": of.scheduler.running if stats else None,
        "waiting_sequences": of.scheduler.waiting if stats else None,
        "kv_used": of.blocks.used / of.blocks.total if of.blocks.total else None,
        "memory_used": of.memory.used_bytes or None,
        "memory_total": of.memory.total_bytes or None,
    }


async def _messages(reader: asyncio.StreamReader) -> AsyncIterator[Message]:
    buffer = FrameBuffer()
    while chunk := await reader.read(1 << 16):
        for payload in buffer.feed(chunk):
            yield MESSAGES.decode(payload)


async def _listen(registrar: Registrar, messages: AsyncIterator[Message]) -> None:
    """Pass messages on. When they end without the engine's own end, its process was killed."""
    async for message in messages:
        registrar.hear(message)
    registrar.hear(EngineEnded(EndReason.KILLED))


async def _serve(settings: Settings) -> None:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    messages = _messages(reader)
    first = await anext(messages, None)
    if first is None:
        return  # the engine has ended already
    if not isinstance(first, Registration):
        raise TypeError(f"expected a registration first, got {first!r}")
    registrar = Registrar(settings, first)
    listening = asyncio.create_task(_listen(registrar, messages))
    try:
        await registrar.run()
    except NameTakenError as error:
        sys.stdout.write(str(error))
        sys.stdout.flush()
    finally:
        listening.cancel()


def main() -> None:
    """Record one engine's session, from its start to its end."""
    for number in (signal.SIGTERM, signal.SIGINT):  # meant for the engine: its end is still to be recorded
        signal.signal(number, signal.SIG_IGN)
    settings = Settings.load()
    configure_logging(settings)
    logging.getLogger("thothy_ai.engine").setLevel(logging.ERROR)  # the end of an engine is expected here
    asyncio.run(_serve(settings))


if __name__ == "__main__":
    main()
