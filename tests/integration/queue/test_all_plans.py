"""Every statement of the service: none may read a whole big table, unless it is named here with a reason.

The plans are those for any parameters (`GENERIC_PLAN`), on tables that hold a year of finished jobs and a full queue.
"""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

import pytest
from sqlalchemy import Connection

from tests.integration.queue.test_plans import FILL
from tests.support.queue_bench import Queue
from thothy_ai.db.statements import statement

SQL = Path(str(files("thothy_ai.db"))) / "sql"
FOLDERS = ("queue", "worker", "producer", "embedded", "admin", "batches")
NAMES = sorted(f"{folder}/{path.stem}" for folder in FOLDERS for path in (SQL / folder).glob("*.sql"))
BIG = ("job", "job_request", "source_text", "attempt_default", "artifact_default", "job_event_default")
PARAMETER = re.compile(r"(?<!:):(\w+)")
WHOLE = re.compile(r"Seq Scan on ({})\b(?!_)".format("|".join(BIG)))
ALLOWED = {
    "queue/status": "counts all open jobs; where most jobs are open, that is the table",
    "queue/drain_state": "engine sessions: a row for each start of an engine",
    "embedded/cancel_open": "once, when a stack of one's own is emptied",
    "admin/ended_jobs": "an operator's list of all jobs in a state",
    "admin/ids_like": "finds ids by their ends",
    "admin/kinds": "the kinds of all jobs, for completion",
    "admin/list_artifacts": "a list whose filters may all be missing",
    "admin/list_jobs": "a list whose filters may all be missing",
    "admin/reasons": "the reasons of all jobs, when one is typed that this version does not know",
    "admin/report_attempts": "a report, of any length of time",
    "admin/usage_yields": "a report, of any length of time",
}
HISTORY = """
    WITH ended AS (SELECT id, tenant, kind, finished_at FROM job WHERE finished_at IS NOT NULL),
    tried AS (
        INSERT INTO attempt (job_id, attempt, tenant, kind, worker, started_at, finished_at, outcome, engine_session_id)
        SELECT id, 1, tenant, kind, 'w', finished_at, finished_at, 'succeeded', gen_random_uuid() FROM ended
    ), judged AS (
        INSERT INTO artifact (job_id, kind, locale, attempt, tenant, verdict, body, text, created_at)
        SELECT id, kind, 'en', 1, tenant, 'accepted', '{}', 'x', finished_at FROM ended
    ), texts AS (
        INSERT INTO source_text (id, tenant, digest, content)
        SELECT id, tenant, CAST(id AS text), 'x' FROM ended
        RETURNING id
    ), bodies AS (
        INSERT INTO job_request (job_id, request, text_field, text_id) SELECT id, '{}', 'text', id FROM texts
    )
    INSERT INTO job_event (job_id, event) SELECT id, 'retried' FROM ended
"""
SESSIONS = """
    INSERT INTO engine_session
        (id, model, device, dtype, gpus, num_blocks, block_size, started_at, ended_at, settled_at)
    SELECT gen_random_uuid(), 'm', 'd', 'bfloat16', 1, 1, 16, now() - n * interval '1 day', now(), now()
    FROM generate_series(1, 400) AS n
"""


def generic(name: str) -> str:
    """The statement with numbered parameters."""
    numbers: dict[str, int] = {}
    code = re.sub(r"--.*", "", statement(name).text)
    return PARAMETER.sub(lambda found: f"${numbers.setdefault(found[1], len(numbers) + 1)}", code)


def plan(connection: Connection, name: str) -> str:
    """How Postgres would run it whatever the parameters are; it is not executed."""
    explained = f"EXPLAIN (GENERIC_PLAN) {generic(name)}".replace("%", "%%")
    return "\n".join(connection.exec_driver_sql(explained).scalars())


@pytest.fixture
def full(queue: Queue) -> Queue:
    for state, jobs in (("succeeded", 30_000), ("queued", 5_000), ("dispatched", 64), ("running", 64)):
        queue.rows(FILL, state=state, jobs=jobs)
    queue.rows(HISTORY)
    queue.rows(SESSIONS)
    queue.rows("ANALYZE job, job_request, source_text, attempt, artifact, job_event, engine_session")
    return queue


def test_no_statement_reads_a_whole_big_table(full: Queue) -> None:
    with full.engine.begin() as connection:
        plans = {name: plan(connection, name) for name in NAMES}
    whole = {name: found for name, found in plans.items() if WHOLE.search(found)}
    assert not {name: found for name, found in whole.items() if name not in ALLOWED}
    assert set(ALLOWED) <= set(NAMES)


def test_a_statement_without_an_index_would_be_found(full: Queue) -> None:
    full.rows("DROP INDEX ix_job_request_text_id")
    full.rows("ANALYZE job_request")
    with full.engine.begin() as connection:
        assert WHOLE.search(plan(connection, "queue/drop_texts"))
