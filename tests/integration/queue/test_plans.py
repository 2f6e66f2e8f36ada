"""The plans of the statements that run all the time: none may read the whole job table.

How each reads `job` and `job_request` is kept in `plans.txt`; with `UPDATE_SNAPSHOTS=1` this file writes it anew.
"""

from __future__ import annotations

import json
import os
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest.mock import patch
from uuid import UUID, uuid4

import pytest
from sqlalchemy import Connection, text

from tests.support.queue_bench import Queue
from thothy_ai.admin.filters import JobFilter
from thothy_ai.admin.jobs import JobList
from thothy_ai.db.statements import statement

RETRY = {"retry_base_seconds": 5, "retry_cap_seconds": 600}
HOUR = {"since": datetime.now(UTC) - timedelta(hours=2), "until": datetime.now(UTC) - timedelta(hours=1)}
ONE = {"ids": [uuid4()], "dispatch_nos": [1]}
AT_REVIEW = {"job_id": uuid4(), "session": uuid4()}
NEXT = {"any_limit": 64, "models": ["m"], "teams": [0], "limits": [64], "floors": [None]}
HOT: dict[str, dict[str, object]] = {
    "worker/claim": {**ONE, "worker": "w", "lease_seconds": 60, "engine_session_id": None, "model_name": "m"},
    "worker/claim_quarantined": {
        **ONE,
        "worker": "w",
        "lease_seconds": 60,
        "engine_session_id": None,
        "model_name": "m",
        "once": 512,
        "twice": 32,
        "lone": 8,
    },
    "worker/measured_verifier": {"name": "m", "weights": "w"},
    "admin/record_verifier": {"name": "m", "weights": "w", "found": 9, "false_alarms": 1},
    "worker/others_running": {"worker": "w", "engine_session_id": None},
    "worker/stop_requests": {"worker": "w"},
    "admin/recall_dispatched": {"scope": None, "name": None},
    "admin/top_rate": {"window": 60},
    "admin/watch_job": {"id": uuid4()},
    "admin/queue_position": {"id": uuid4(), "limit": 1000},
    "admin/quarantined": {"tenant": None, "limit": 100},
    "admin/ended_attempts": {"id": uuid4(), "after": 0},
    "worker/heartbeat": {"ids": [uuid4()], "attempts": [1], "worker": "w", "lease_seconds": 60},
    "worker/hold": ONE,
    "worker/finish": {"rows": f'[{{"id": "{uuid4()}", "attempt": 1}}]', "worker": "w"},
    "queue/follow_ups_of": {"ids": [uuid4()]},
    "queue/supersede": {"ids": [uuid4()]},
    "queue/dispatch": {"ids": [uuid4()], "engine": "a"},
    "queue/due": NEXT,
    "queue/dispatch_next": {**NEXT, "engine": "a", "lowest": 0, "places": 64, "urgent_places": 32},
    "queue/engines": {"worker_seconds": 22},
    "http/engines": {},
    "http/keys": {},
    "http/console_secret": {"secret": "s"},
    "http/make_console_link": {
        "digest": b"d",
        "name": "Ada",
        "personal": True,
        "role": "reader",
        "tenant": None,
        "seconds": 900,
    },
    "http/begin_session": {"id": uuid4(), "name": "Ada", "role": "reader", "tenant": None, "key_id": None},
    "http/end_sessions": {"id": uuid4(), "key_id": None, "tenant": None},
    "http/ended_sessions": {},
    "http/open_sessions": {"seconds": 43200, "tenant": None, "limit": 100},
    "http/look_at_review": {**AT_REVIEW, "viewer": "* Ada", "name": "Ada", "version": 1, "texts": None},
    "http/go_on_with_review": {**AT_REVIEW, "viewer": "* Ada"},
    "http/others_at_review": AT_REVIEW,
    "http/at_review": {"ids": [uuid4()], "session": uuid4()},
    "http/forget_review": {**AT_REVIEW, "used": ["body"]},
    "http/use_console_link": {"digest": b"d"},
    "http/begin_change": {"id": uuid4(), "name": "Ada", "tenant": None, "action": "pause", "target": "m"},
    "http/end_change": {"id": uuid4(), "before": None, "after": "{}"},
    "http/audit_log": {"tenant": None, "after_id": None, "limit": 100},
    "http/spent_today": {},
    "batches/open": {},
    "batches/results": {"ids": [uuid4()]},
    "batches/counts": {"ids": [uuid4()], "tenant": "default"},
    "queue/hand_over": {"donor": "a", "engine": "b", "serves": ["m"], "limit": 100},
    "queue/recall_lost": {"worker_seconds": 22},
    "queue/reap_lost": {"lease_seconds": 60, "worker_seconds": 15},
    "queue/sources": {},
    "queue/unserved": {"limit": 1000, "names": 200},
    "queue/cancel": {"ids": [uuid4()], "tenant": None},
    "queue/change": {"ids": [uuid4()], "tenant": None, "change": '{"priority": 5}', "detail": "priority 5"},
    "queue/admit_delayed": {"limit": 5000},
    "queue/reap_cancelled": {"limit": 5000},
    "queue/reap_dispatches": {**ONE, "timeout_seconds": 15},
    "queue/reap_expired": {"limit": 5000},
    "queue/reap_leases": RETRY,
    "queue/unclaimed_dispatches": {"timeout_seconds": 15},
    "queue/lock_hours": {"hours": 6, "open_hours": 1},
    "queue/close_hours": HOUR,
    "queue/drain_state": {"empty_at": None, "absence_seconds": 900},
    "queue/end_batches": {"limit": 1000},
    "queue/take_deliveries": {"busy": [], "per_origin": 4, "limit": 16, "lease_seconds": 60},
    "producer/snapshots": {"ids": [uuid4()], "tenant": "t"},
    "producer/artifacts": {"ids": [uuid4()], "tenant": "t"},
    "queue/lock_sessions": {},
    "queue/settle_sessions": {"ids": [uuid4()]},
    "queue/past_months": {"before": HOUR["until"]},
    "queue/month_kept": {"month": "2026_01", "before": HOUR["until"], "after": str(UUID(int=0)), "limit": 1000},
    "worker/record_usage": {
        "job_ids": [uuid4()],
        "attempts": [1],
        "session_ids": [uuid4()],
        "seconds": [0.5],
        "recorded": [0.0],
    },
    "worker/similar": {
        "signature": [1, 2],
        "tenant": "t",
        "kind": "echo",
        "locale": "en",
        "days": 7,
        "job_id": uuid4(),
    },
    "worker/unseen_similar": {
        "rows": json.dumps(
            [{"id": str(uuid4()), "attempt": 1, "locale": "en", "signature": [1, 2], "compared_with": [str(uuid4())]}]
        ),
        "days": 7,
    },
}
FILL = """
    INSERT INTO job (id, tenant, kind, source_key, request_digest, max_attempts, state, finished_at, deadline,
        enqueued_at, dispatched_at, worker, lease_until, started_at)
    SELECT gen_random_uuid(), 't', 'echo', 's' || n % 1000, 'd', 3, state,
        CASE WHEN state = 'succeeded' THEN now() - n * interval '1 minute' END,
        CASE WHEN n % 3 = 0 THEN now() + interval '1 day' END, now() - n * interval '1 minute', now(),
        CASE WHEN state = 'running' THEN 'w' || n % 4 END, CASE WHEN state = 'running' THEN now() END, now()
    FROM generate_series(1, :jobs) AS n, (SELECT CAST(:state AS text) AS state)
"""


SNAPSHOT = Path(__file__).with_name("plans.txt")
READ = re.compile(r"((?:Seq|Index|Index Only|Bitmap Heap) Scan .*\bon (?:job|job_request)\b)(?!_)")


def plan(connection: Connection, name: str) -> str:
    """How Postgres would run it; that is not executed."""
    explained = text("EXPLAIN " + statement(name).text)
    return "\n".join(connection.execute(explained, HOT[name]).scalars())


@pytest.fixture
def full(queue: Queue) -> Queue:
    with queue.engine.begin() as connection:  # which pages a vacuum has seen changes plans
        connection.execute(text("ALTER TABLE job SET (autovacuum_enabled = off)"))
    for state, jobs in (("succeeded", 30_000), ("queued", 5_000), ("dispatched", 64), ("running", 64)):
        queue.rows(FILL, state=state, jobs=jobs)
    with queue.engine.begin() as connection:
        connection.execute(text("SET LOCAL default_statistics_target = 1000"))  # all rows: the same each time
        connection.execute(text("ANALYZE job"))
    return queue


def test_no_hot_statement_reads_the_whole_job_table(full: Queue) -> None:
    with full.engine.begin() as connection:
        plans = {name: plan(connection, name) for name in HOT}
    assert not {
        name: found for name, found in plans.items() if "Seq Scan on job\n" in f"{found}\n".replace("  (", "\n")
    }


def test_jobs_are_read_as_the_snapshot_says(full: Queue) -> None:
    with full.engine.begin() as connection:
        reads = {name: sorted(set(READ.findall(plan(connection, name)))) for name in sorted(HOT)}
    found = "".join(f"{name}\n" + "".join(f"  {each}\n" for each in reads[name]) for name in reads)
    if os.environ.get("UPDATE_SNAPSHOTS"):
        SNAPSHOT.write_text(found)
    assert found.splitlines() == SNAPSHOT.read_text().splitlines()


@pytest.mark.parametrize(
    ("field", "column", "index"), [("batch_id", "batch_id", "ix_job_batch"), ("parent", "parent_id", "ix_job_parent")]
)
def test_old_jobs_of_one_are_listed_without_the_newer_ones(full: Queue, field: str, column: str, index: str) -> None:
    one = uuid4()
    full.rows(f"UPDATE job SET {column} = :one WHERE id IN (SELECT id FROM job ORDER BY id LIMIT 4000)", one=one)
    full.rows("ANALYZE job")
    wanted = JobList(JobFilter(**{field: one}))
    with patch("thothy_ai.admin.jobs.statement", lambda name: text("EXPLAIN " + statement(name).text)):
        found = "\n".join(row["QUERY PLAN"] for row in wanted.page(full.engine))
    assert f"using {index} on job" in found, found
    assert "Sort" not in found, found


def test_dispatch_reads_the_queue_in_its_order(full: Queue) -> None:
    with full.engine.begin() as connection:
        found = plan(connection, "queue/due")
    assert "Index Scan using ix_job_queued on job" in found, found
    assert "Index Scan using ix_job_queued_model on job" in found, found


SIGNED = """
    INSERT INTO artifact (job_id, kind, locale, attempt, tenant, verdict, body, text, signature)
    SELECT uuidv7(), 'echo', 'en', 1, 't', 'accepted', '{}', 'x', ARRAY[n, -n, n * 1000003::bigint]
    FROM generate_series(1, 5000) AS n
"""


@pytest.mark.parametrize("name", ["worker/similar", "worker/unseen_similar"])
def test_near_duplicates_are_searched_by_index(name: str, queue: Queue) -> None:
    queue.rows(SIGNED)
    queue.rows("ANALYZE artifact")
    with queue.engine.begin() as connection:
        found = plan(connection, name)
    assert "Bitmap Index Scan" in found, found
    assert "signature &&" in found or "&& given.signature" in found
