"""`StandIn`: replaces a worker whose engine answers at once, so that a benchmark measures dispatcher and Postgres, not
Celery. It claims and finishes with the worker's own statements.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any
from uuid import UUID

from redis import Redis
from sqlalchemy import Engine, text

from thothy_ai.db.statements import statement
from thothy_ai.db.states import ArtifactVerdict, JobState, Outcome
from thothy_ai.engine.api import Usage
from thothy_ai.queue.hints import Hint, list_keys, parse_task_id
from thothy_ai.settings import Settings
from thothy_ai.worker.record.finish import AttemptUsage, Finish, Judged

IN_FLIGHT = 256
WORKER, ENGINE = "stand-in", "stand-in"
RESIDENT = text(
    "INSERT INTO engine_session (id, engine_name, model, device, dtype, gpus, num_blocks, block_size, capacity,"
    " started_at, heartbeat_at, worker_heartbeat_at) SELECT gen_random_uuid(), :name, 'none', 'none', 'none', 0, 0, 16,"
    " :capacity, now(), now() + interval '1 day', now() + interval '1 day'"
    " WHERE NOT EXISTS (SELECT FROM engine_session WHERE engine_name = :name)"
)
TAKING = {"worker": WORKER, "lease_seconds": 60, "engine_session_id": None, "model_name": ""}


class StandIn:
    """Keeps up to two batches of `IN_FLIGHT` jobs running. `taken`: ids in the order of their arrival."""

    def __init__(self, settings: Settings, engine: Engine) -> None:
        self.key = list_keys(settings, ENGINE).ordinary
        self.taken: list[UUID] = []
        self._engine = engine
        with engine.begin() as connection:  # otherwise the dispatcher knows no engine
            connection.execute(RESIDENT, {"name": ENGINE, "capacity": IN_FLIGHT})

    def work(self, redis: Redis, jobs: int) -> Iterator[int]:
        """Work until this many jobs are finished; yields the number of hints of each poll of Redis."""
        running: list[tuple[UUID, int]] = []
        finished = 0
        while finished < jobs:
            hints = self._take(redis)
            yield len(hints)
            claimed = self._claim(hints)
            self._finish(running)
            finished += len(running)
            running = claimed

    def _take(self, redis: Redis) -> list[Hint]:
        first: Any = redis.brpop([self.key], timeout=0.05)
        more: Any = redis.rpop(self.key, IN_FLIGHT - 1) if first else None
        elements = ([first[1]] if first else []) + (more or [])
        hints = [hint for element in elements if (hint := parse_task_id(json.loads(element)["headers"]["id"]))]
        self.taken += [hint.job_id for hint in hints]
        return hints

    def _claim(self, hints: list[Hint]) -> list[tuple[UUID, int]]:
        if not hints:
            return []
        parameters = {"ids": [hint.job_id for hint in hints], "dispatch_nos": [hint.dispatch_no for hint in hints]}
        with self._engine.begin() as connection:
            rows = connection.execute(statement("worker/claim"), {**parameters, **TAKING})
            return [(row.id, row.attempt) for row in rows]

    def _finish(self, running: list[tuple[UUID, int]]) -> None:
        if running:
            rows = json.dumps([finish_row(job_id, attempt) for job_id, attempt in running])
            with self._engine.begin() as connection:
                connection.execute(statement("worker/finish"), {"rows": rows, "worker": WORKER}).all()


def finish_row(
    job_id: UUID, attempt: int, body: Mapping[str, Any] = MappingProxyType({"note": "n"}), text: str = '{"note": "n"}'
) -> dict[str, Any]:
    """A row of the statement `worker/finish` for an accepted artifact."""
    used = AttemptUsage(engine=Usage(prompt_tokens=100, output_tokens=20, cached_tokens=0, compute_seconds=0.01))
    judged = Judged(ArtifactVerdict.ACCEPTED, "en", dict(body), text)
    return Finish(job_id, attempt, JobState.SUCCEEDED, Outcome.SUCCEEDED, usage=used, judged=judged).row()
