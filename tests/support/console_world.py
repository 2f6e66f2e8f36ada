"""Something on every page of the console: jobs in each state, drafts, decisions, deliveries, pauses, engines, keys.

One text stands wherever people, models and machines may write one, so that a test says what the pages are full of.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

from tests.support.decided import FINDING, written
from tests.support.engine_rows import register
from tests.support.queue_bench import Queue
from thothy_ai.db.api_keys import UNLIMITED, create_key
from thothy_ai.db.states import ReviewState
from thothy_ai.queue.control import set_paused
from thothy_ai.queue.pauses import pause_part

DEAD = """
    UPDATE job SET state = 'dead', finished_at = now(), attempt = 1, reason = 'repetition', detail = :d WHERE id = :id
"""
TRIED = """
    INSERT INTO attempt (job_id, attempt, tenant, kind, worker, started_at, outcome, reason, detail)
    SELECT id, 1, tenant, kind, :short, now(), 'rejected', 'repetition', :d FROM job WHERE id = :id
"""
WROTE = """
    INSERT INTO artifact (job_id, kind, locale, attempt, tenant, verdict, reason, text)
    SELECT id, kind, 'en', 1, tenant, 'rejected', 'repetition', :d FROM job WHERE id = :id
"""
DECIDED = """
    INSERT INTO decision (job_id, version, attempt, tenant, action, decided_by, note)
    SELECT id, 1, 1, tenant, 'hold', :short, :d FROM job WHERE id = :id
"""
DRAFTED = """
    INSERT INTO review_draft (job_id, session, viewer, name, version, texts)
    VALUES (:id, gen_random_uuid(), :short, :short, 1, CAST(:texts AS jsonb))
"""
BATCH = "INSERT INTO batch (id, tenant, url, notify, jobs) VALUES (:id, 'default', :url, 'job', 1)"
DELIVERY = """
    INSERT INTO webhook_delivery (batch_id, tenant, url, origin, payload, attempts, dead_at, status, error)
    VALUES (:id, 'default', :url, 'https://x.example', CAST(:payload AS jsonb), 8, now(), 500, :d)
"""
CHANGE = """
    INSERT INTO audit_log (id, name, action, target, before, after)
    VALUES (gen_random_uuid(), :short, 'pause', :short, CAST(:what AS jsonb), CAST(:what AS jsonb))
"""
DRAIN = """
    INSERT INTO drain (started_at, ended_at, succeeded, dead, attempts, with_output, wait_p50, run_p50)
    VALUES (now() - interval '2 hours', now() - interval '1 hour', 90, 10, 120, 100, 4.5, 61) RETURNING started_at
"""


@dataclass(frozen=True, slots=True)
class World:
    """The jobs and the drain that pages are about."""

    waiting: UUID
    dead: UUID
    child: UUID
    piece: UUID
    draft: UUID
    held: UUID
    drained_from: datetime


def fill(queue: Queue, text: str, long: str = "", *, paused: bool = True) -> World:
    """Write the text everywhere, and `long` where any length is kept. With `paused`, nothing of it runs."""
    long, short = long or text, text[:90]
    if paused:
        set_paused(queue.engine, paused=True, note=text[:500])
    pause_part(queue.engine, "model", short, by=short, note=text[:500])
    queue.rows("INSERT INTO model_alias (alias, model_name) VALUES (:short, :short)", short=short)
    create_key(queue.engine, "default", ["read"], UNLIMITED, name=short, expires_at=None)
    register(queue, short, short, state="ended")
    register(queue, f"{short}.", short)
    queue.rows("UPDATE engine_session SET end_reason = :d, machine = :short, device = :short", d=text, short=short)
    waiting, dead, child = queue.enqueue(long, f"{long} ", "ok", idempotency_key=None)
    queue.rows("UPDATE job SET idempotency_key = :key WHERE id = :id", key=text[:500], id=waiting)
    queue.rows("UPDATE job SET parent_id = :parent WHERE id = :id", parent=dead, id=child)
    queue.rows(DEAD, id=dead, d=long)
    queue.rows(TRIED, id=dead, d=long, short=short)
    queue.rows(WROTE, id=dead, d=long)
    finding = {**FINDING, "detail": text}
    body: dict[str, Any] = {"echo": long}
    piece = written(queue, body=body, findings=(finding,), source=f"{long}  ")
    draft = written(queue, ReviewState.NEEDS_EDIT, body=body, findings=(finding,), source=f"{long}   ")
    held = written(queue, ReviewState.HELD, body=body, findings=())
    queue.rows(DECIDED, id=held, d=long, short=short)
    texts = json.dumps({"echo": long})
    queue.rows(DRAFTED, id=piece, short=short, texts=texts)
    batch, url = uuid4(), f"https://x.example/{text}"[:2000]
    queue.rows(BATCH, id=batch, url=url)
    queue.rows(DELIVERY, id=batch, url=url, payload=json.dumps({"type": short, "job_id": str(dead)}), d=long)
    queue.rows(CHANGE, short=short, what=json.dumps({"note": long}))
    [(drained_from,)] = queue.rows(DRAIN)
    return World(waiting, dead, child, piece, draft, held, drained_from)
