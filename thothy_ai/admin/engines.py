"""The queue's engines, as registered in Postgres with their workers, and as they answer directly."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from redis import Redis
from sqlalchemy import Engine

from thothy_ai.db.statements import statement
from thothy_ai.engine.api import EngineInfo, EngineStats
from thothy_ai.engine.api.errors import EngineLostError
from thothy_ai.engine.serving.client import connect
from thothy_ai.queue.live import interest_channel, presence_channel
from thothy_ai.settings import Settings

ENGINE_SECONDS, REDIS_SECONDS = 5.0, 3.0  # for an answer
STILL_SECONDS = 5.0  # without a finished step; a step on a CPU can take a few
RECORDED_SECONDS = STILL_SECONDS + 4.0  # the same in Postgres' records, which engines write every two seconds
LOOK_SECONDS = 0.25
_SILENT = logging.NullHandler()  # one for all calls, because a logger adds the same handler only once


@dataclass(frozen=True, slots=True)
class EngineStatus:
    """One run of an engine. `state`: loading, ready, stopping, silent (no heartbeat for too long) or ended."""

    id: UUID
    name: str
    machine: str
    address: str
    model: str
    model_name: str
    adapters: Mapping[str, Mapping[str, Any]]  # each adapter's record, by name
    device: str
    devices: tuple[str, ...]  # GPU UUIDs
    gpus: int
    capacity: int
    started_at: datetime
    ready_at: datetime | None
    ended_at: datetime | None
    end_reason: str | None
    state: str
    heartbeat_age: float  # seconds
    ready_seconds: float  # since it was ready or, before that, since its start
    busy_seconds: float  # of the device, as last recorded
    running: int  # jobs
    tokens_per_second: float  # output tokens, over the last minute
    running_sequences: int | None  # this and the following as of the last heartbeat; None: unknown
    waiting_sequences: int | None
    kv_used: float | None  # as a share of the blocks
    memory_used: int | None  # bytes on its devices, or of its process on a CPU
    memory_total: int | None
    paused: bool  # by an operator, so that it gets no new jobs

    @property
    def lives(self) -> bool:
        return self.state not in {"ended", "silent"}


@dataclass(frozen=True, slots=True)
class WorkerCounts:
    connected: int  # to Redis
    serving: dict[str, int]  # workers by the name of their engine

    @property
    def without_engine(self) -> int:
        return max(0, self.connected - sum(self.serving.values()))


def engines(engine: Engine, ended: timedelta = timedelta(0)) -> list[EngineStatus]:
    """Engines that have not ended, and those that ended within the last `ended`."""
    with engine.connect() as connection:
        rows = connection.execute(statement("admin/engines"), {"ended_seconds": ended.total_seconds()})
        return [EngineStatus(**{**row, "devices": tuple(row["devices"])}) for row in rows.mappings()]


def addresses(engine: Engine, machine: str) -> list[str]:
    """The addresses of the ready engines on `machine`."""
    with engine.connect() as connection:
        return list(connection.execute(statement("admin/engine_addresses"), {"machine": machine}).scalars())


def workers(settings: Settings, names: Sequence[str]) -> WorkerCounts:
    """The workers of the engines with these names. Raises `RedisError`."""
    url = settings.require_redis_url()
    channels = [interest_channel(settings), *(presence_channel(settings, name) for name in names)]
    with Redis.from_url(url, socket_timeout=REDIS_SECONDS, socket_connect_timeout=REDIS_SECONDS) as client:
        counted: Any = client.pubsub_numsub(*channels)
    connected, *serving = (int(number) for _, number in counted)
    return WorkerCounts(connected, dict(zip(names, serving, strict=True)))


def silence_client() -> None:
    """Keep the client's warnings off the terminal, where they would repeat the error that follows."""
    logging.getLogger("thothy_ai.engine").addHandler(_SILENT)


async def engine_state(url: str, token: str | None) -> tuple[EngineInfo, EngineStats]:
    """Ask an engine over a new connection. Raises `EngineLostError`."""
    silence_client()
    client = connect(url, token)
    try:
        async with asyncio.timeout(ENGINE_SECONDS):
            await client.start()
            return await client.info(), await client.stats()
    except (OSError, TimeoutError) as error:
        why = str(error) or f"no answer within {ENGINE_SECONDS:g} s"
        raise EngineLostError(f"no engine answers at {url}: {why}") from None
    finally:
        await client.close()


async def stands_still(url: str, token: str | None) -> bool:
    """Whether the engine has sequences but finishes no step for `STILL_SECONDS`. Raises `EngineLostError`."""
    _, first = await engine_state(url, token)
    until = time.monotonic() + STILL_SECONDS
    stats = first
    while stats.core.steps == first.core.steps and (stats.scheduler.running or stats.scheduler.waiting):
        if time.monotonic() >= until:
            return True
        await asyncio.sleep(LOOK_SECONDS)
        _, stats = await engine_state(url, token)
    return False


def recorded_still(engine: Engine, among: Collection[UUID]) -> list[EngineStatus]:
    """The engines among these that have jobs but recorded no work for `RECORDED_SECONDS`."""
    until = time.monotonic() + RECORDED_SECONDS
    first = still = {each.id: each for each in engines(engine) if each.id in among and each.running}
    while still and time.monotonic() < until:
        time.sleep(4 * LOOK_SECONDS)
        now = [each for each in engines(engine) if each.id in still and each.running]
        still = {each.id: each for each in now if each.busy_seconds == first[each.id].busy_seconds}
    return list(still.values())
