"""Rows of which the books are made: sessions, jobs and attempts at given times."""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import UUID, uuid4

from tests.support.queue_bench import Queue
from thothy_ai.queue.books import settle_sessions

HOUR = timedelta(hours=1)


def session(queue: Queue, start: datetime, end: datetime | None, *, gpus: int = 2, model: str = "small") -> UUID:
    made = uuid4()
    queue.rows(
        "INSERT INTO engine_session (id, model, model_name, device, dtype, gpus, num_blocks, block_size, started_at,"
        " heartbeat_at, ended_at) VALUES (:id, '/models/small', :model, 'cuda', 'bf16', :gpus, 1, 16, :start,"
        " coalesce(:end, now()), :end)",
        id=made, model=model, gpus=gpus, start=start, end=end,
    )  # fmt: skip
    return made


def job(queue: Queue, kind: str, state: str, due: datetime, end: datetime | None, **values: object) -> UUID:
    made = uuid4()
    row = {"tenant": "t", "source_key": "s", "request_digest": "d", "max_attempts": 3, "attempt": 1, "not_before": due}
    reason = "x" if state == "dead" else None
    row |= {
        "id": made,
        "kind": kind,
        "state": state,
        "enqueued_at": due,
        "finished_at": end,
        "reason": reason,
        **values,
    }
    queue.rows(f"INSERT INTO job ({', '.join(row)}) VALUES ({', '.join(f':{name}' for name in row)})", **row)
    return made


def attempt(
    queue: Queue, job_id: UUID, outcome: str, end: datetime, seconds: float, box: UUID | None, number: int = 1,
    *, start: datetime | None = None,
) -> None:  # fmt: skip
    queue.rows(
        "INSERT INTO attempt (job_id, attempt, tenant, kind, worker, engine_session_id, started_at, finished_at,"
        " outcome, prompt_tokens, cached_tokens, output_tokens, compute_seconds)"
        " SELECT :id, :number, tenant, kind, 'w', :box, coalesce(:start, finished_at), :end, :outcome, 100, 60, 7,"
        " :seconds FROM job WHERE id = :id",
        id=job_id, number=number, box=box, end=end, outcome=outcome, seconds=seconds, start=start,
    )  # fmt: skip


def settle(queue: Queue) -> None:
    with queue.engine.begin() as connection:
        settle_sessions(connection)
