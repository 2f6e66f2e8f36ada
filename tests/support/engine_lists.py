"""Lists of engines in Redis, and the engines of dispatched and running jobs."""

from __future__ import annotations

import json
from uuid import UUID

from redis import Redis

from tests.support.queue_bench import Queue
from thothy_ai.queue.hints import Hint, parse_task_id

A, B = "thothy:jobs@a", "thothy:jobs@b"
LEASE = 6000  # seconds, as everything that is compared here: some pass between a statement and the next


def listed(redis: Redis, key: str) -> list[Hint | None]:
    """Hints in the order in which workers get them."""
    return [parse_task_id(json.loads(element)["headers"]["id"]) for element in reversed(redis.lrange(key, 0, -1))]


def engines_of(queue: Queue) -> dict[UUID, str | None]:
    return {row.id: row.engine_name for row in queue.rows("SELECT id, engine_name FROM job WHERE state = 'dispatched'")}


def start(queue: Queue, job_id: UUID, session: UUID, *, beat: float = 0.0, **changes: object) -> None:
    """Run it in this session; its worker's last heartbeat was `beat` seconds ago."""
    queue.rows(
        "UPDATE job SET state = 'running', attempt = attempt + 1, worker = 'w', started_at = now(),"
        " engine_session_id = :session, lease_until = now() + make_interval(secs => :left) WHERE id = :id",
        id=job_id,
        session=session,
        left=LEASE - beat,
    )
    for name, value in changes.items():
        queue.rows(f"UPDATE job SET {name} = :value WHERE id = :id", id=job_id, value=value)
