"""Everything that changes attempts locks in one order: the bill's progress, sessions by id, attempts, hours.

Each test holds an attempt that both statements need, so that they stand in each other's way in a known order.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from uuid import UUID

import pytest
from sqlalchemy import Connection, Engine, text

from tests.support.book_rows import attempt, job, session
from tests.support.queue_bench import Queue, eventually
from thothy_ai.admin.dead_letters import Selection, purge
from thothy_ai.db.statements import statement
from thothy_ai.queue.books import close_hours, settle_sessions

WAITING = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"


def record(engine: Engine, jobs: list[UUID], box: UUID) -> None:
    given = {"job_ids": jobs, "attempts": [1, 1], "session_ids": [box] * 2, "seconds": [1.5] * 2, "recorded": [0.0] * 2}
    with engine.begin() as connection:
        connection.execute(statement("worker/record_usage"), given)


def settle(engine: Engine) -> None:
    with engine.begin() as connection:
        settle_sessions(connection)


def hold(connection: Connection, job_id: UUID) -> None:
    connection.execute(text("SELECT 1 FROM attempt WHERE job_id = :id FOR UPDATE"), {"id": job_id})


@pytest.mark.parametrize("purges", [False, True])
def test_usage_that_is_recorded_or_purged_while_its_session_is_settled_does_not_deadlock(
    queue: Queue, hour: datetime, purges: bool
) -> None:
    box = session(queue, hour, hour)
    jobs = sorted(job(queue, "hook", "dead", hour, hour) for _ in range(2))
    for each in jobs:
        attempt(queue, each, "lost", hour, 0.0, box, start=hour - timedelta(seconds=10))
    queue.rows("UPDATE engine_session SET busy_seconds = 10")
    if not purges:  # which locks the sessions of open hours only
        close_hours(queue.engine)
    first: Callable[[], object] = (
        (lambda: purge(queue.engine, Selection())) if purges else (lambda: record(queue.engine, jobs, box))
    )
    with ThreadPoolExecutor(2) as threads, queue.engine.connect() as holder:
        hold(holder, jobs[1])
        changed = threads.submit(first)
        eventually(lambda: queue.rows(WAITING)[0][0] == 1)
        settled = threads.submit(lambda: settle(queue.engine))
        eventually(lambda: queue.rows(WAITING)[0][0] == 2)
        holder.rollback()
        changed.result()
        settled.result()
    seconds = [row.compute_seconds for row in queue.rows("SELECT compute_seconds FROM attempt")]
    assert seconds == ([] if purges else [5.0, 5.0])
    [billed] = queue.rows("SELECT billed_seconds, settled_at FROM engine_session")
    assert billed.settled_at is not None
    assert billed.billed_seconds == (0.0 if purges else 10.0)
