"""Jobs that have succeeded, without a worker: their artifacts wait for a person."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

from tests.support.queue_bench import Queue
from thothy_ai.db.states import ReviewState

ENDED = "UPDATE job SET state = 'succeeded', finished_at = now(), attempt = 1, review = :review WHERE id = :id"
WRITTEN = """
    INSERT INTO artifact (job_id, kind, locale, attempt, tenant, verdict, reason, body, text, findings, draft)
    SELECT id, kind, 'en', 1, tenant, :verdict, CASE :verdict WHEN 'rejected' THEN 'repetition' END,
        CAST(:body AS jsonb), 'as it was written', CAST(:findings AS jsonb),
        :verdict = 'rejected'
    FROM job WHERE id = :id
"""
FINDING = {
    "reason": "number_not_in_source", "detail": "'40' is not in the source", "part": "echo", "start": 4, "end": 9,
    "source_start": 0, "source_end": 2, "weight": 0.6, "by": "rule",
}  # fmt: skip


def written(
    queue: Queue,
    review: ReviewState | None = ReviewState.NEEDS_REVIEW,
    body: dict[str, Any] | None = None,
    findings: tuple[dict[str, Any], ...] = (FINDING,),
    source: str = "ok and all of it",
    **options: Any,
) -> UUID:
    """A job of the kind `echo` whose artifact a person may decide on."""
    [job_id] = queue.enqueue(source, **options)
    verdict = "rejected" if review is ReviewState.NEEDS_EDIT else "accepted"
    queue.rows(ENDED, id=job_id, review=review)
    stored = json.dumps(body or {"echo": "The first words."})
    queue.rows(WRITTEN, id=job_id, verdict=verdict, body=stored, findings=json.dumps(findings))
    queue.rows(
        "INSERT INTO attempt (job_id, attempt, tenant, kind, worker, started_at, outcome) SELECT id, 1, tenant,"
        " kind, 'w', now(), CASE review WHEN 'needs_edit' THEN 'rejected' ELSE 'succeeded' END FROM job WHERE id = :id",
        id=job_id,
    )
    return job_id
