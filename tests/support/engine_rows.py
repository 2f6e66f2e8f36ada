"""Rows of `engine_session`, as the engines' own sides write them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING
from uuid import UUID, uuid4

if TYPE_CHECKING:
    from tests.support.queue_bench import Queue

REGISTER = """
    INSERT INTO engine_session (id, engine_name, model_name, adapters, capacity, state, model, device, dtype, gpus,
        num_blocks, block_size, started_at, heartbeat_at, ended_at, worker_heartbeat_at)
    VALUES (:id, :name, :model, CAST(:adapters AS jsonb), :capacity, :state, 'm', 'none', 'none', 0, 0, 16,
        now() - make_interval(secs => :age), now() - make_interval(secs => :silent),
        CASE WHEN :state = 'ended' THEN now() END, now() - make_interval(secs => CAST(:worker_silent AS float8)))
"""


def register(
    queue: Queue,
    name: str,
    model: str = "",
    *,
    capacity: int = 64,
    state: str = "ready",
    silent: float = -3600.0,
    age: float = 100.0,
    worker_silent: float | None = -3600.0,
    adapters: Mapping[str, str] | None = None,
    session: UUID | None = None,
) -> UUID:
    """Record a session; its last heartbeat was `silent` seconds ago, by default in an hour. Returns its id.

    `worker_silent`: the same of its worker; None: it has had none. `adapters`: digests by name.
    """
    session = session or uuid4()
    has = json.dumps({name: {"digest": digest} for name, digest in (adapters or {}).items()})
    given = {"name": name, "model": model, "capacity": capacity, "state": state, "silent": silent, "age": age}
    queue.rows(REGISTER, id=session, worker_silent=worker_silent, adapters=has, **given)
    return session


def set_adapters(queue: Queue, session: UUID, adapters: Mapping[str, str]) -> None:
    """It has these adapters now, digests by name."""
    has = json.dumps({name: {"digest": digest} for name, digest in adapters.items()})
    queue.rows("UPDATE engine_session SET adapters = CAST(:has AS jsonb) WHERE id = :id", has=has, id=session)


def fall_silent(queue: Queue, session: UUID, seconds: float = 11.0) -> None:
    """Nothing has been heard of it for so long."""
    queue.rows(
        "UPDATE engine_session SET heartbeat_at = now() - make_interval(secs => :s) WHERE id = :id",
        s=seconds,
        id=session,
    )


def register_first(queue: Queue) -> None:
    """Record an engine named as the fake ones, with a worker, unless there is any."""
    if not queue.rows("SELECT FROM engine_session"):
        register(queue, "first")
