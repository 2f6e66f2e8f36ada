"""The queue's engines, as they register themselves in Postgres, and the workers beside them, as Redis sees them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from redis import Redis
from sqlalchemy import Engine

from thothy_ai.db.statements import statement
from thothy_ai.queue.live import interest_channel, presence_channel
from thothy_ai.settings import Settings

ANSWER_SECONDS = 3.0
NONE = timedelta(0)


@dataclass(frozen=True, slots=True)
class EngineStatus:
    """One run of an engine. `state`: loading, ready, stopping, silent (no heartbeat for too long) or ended.

    Rows that a worker writes for an engine that does not register itself have neither name nor machine.
    """

    id: UUID
    name: str
    machine: str
    address: str
    model: str
    model_name: str
    device: str
    devices: tuple[str, ...]  # UUIDs of its GPUs
    gpus: int
    capacity: int
    started_at: datetime
    ready_at: datetime | None
    ended_at: datetime | None
    end_reason: str | None
    state: str
    heartbeat_age: float  # seconds
    ready_seconds: float  # since it was ready, or started
    running: int  # jobs
    tokens_per_second: float  # of output, over the last minute

    @property
    def lives(self) -> bool:
        """Whether it has not ended and is not silent."""
        return self.state not in {"ended", "silent"}


@dataclass(frozen=True, slots=True)
class Workers:
    """How many workers are connected to Redis, and how many serve each engine."""

    connected: int
    serving: dict[str, int]

    @property
    def without_engine(self) -> int:
        """Workers that serve none of these engines."""
        return max(0, self.connected - sum(self.serving.values()))


def engines(engine: Engine, ended: timedelta = NONE) -> list[EngineStatus]:
    """Engines that have not ended, and those that ended within the last `ended`."""
    with engine.connect() as connection:
        rows = connection.execute(statement("admin/engines"), {"ended_seconds": ended.total_seconds()})
        return [EngineStatus(**{**row, "devices": tuple(row["devices"])}) for row in rows.mappings()]


def addresses(engine: Engine, machine: str) -> list[str]:
    """Where the engines of this machine listen that are ready."""
    with engine.connect() as connection:
        return list(connection.execute(statement("admin/engine_addresses"), {"machine": machine}).scalars())


def workers(settings: Settings, names: Sequence[str]) -> Workers:
    """The workers of the engines with these names. Raises `RedisError`."""
    url = settings.require_redis_url()
    channels = [interest_channel(settings), *(presence_channel(settings, name) for name in names)]
    with Redis.from_url(url, socket_timeout=ANSWER_SECONDS, socket_connect_timeout=ANSWER_SECONDS) as client:
        counted: Any = client.pubsub_numsub(*channels)
    connected, *serving = (int(number) for _, number in counted)
    return Workers(connected, dict(zip(names, serving, strict=True)))
