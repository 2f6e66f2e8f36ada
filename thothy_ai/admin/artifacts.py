"""Lists and streams artifacts, accepted and rejected by gates or by people."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Engine, Row

from thothy_ai.admin.filters import ALL_JOBS, JobFilter
from thothy_ai.db.statements import statement
from thothy_ai.queue.seeds import attempt_seed

Place = tuple[datetime, UUID, int]  # an artifact's place in the list: its time, job and attempt


def list_artifacts(
    engine: Engine,
    jobs: JobFilter = ALL_JOBS,
    *,
    job_id: UUID | None = None,
    verdict: str | None = None,
    approved: bool = False,
    since: datetime | None = None,
    until: datetime | None = None,
    after: Place | None = None,
    limit: int | None = 20,
) -> list[dict[str, Any]]:
    """Artifacts of these jobs, the newest first, from the one that follows the place `after`.

    `since` and `until` bound their creation. With `approved`, only artifacts that a person approved.
    """
    times = {"since": since, "until": until, "approved": approved, **_after(after)}
    wanted = {**jobs.parameters(), **times, "job_id": job_id, "verdict": verdict, "limit": limit, "by_source": False}
    with engine.connect() as connection:
        return [_artifact(row) for row in connection.execute(statement("admin/list_artifacts"), wanted)]


def stream_artifacts(
    engine: Engine,
    jobs: JobFilter = ALL_JOBS,
    *,
    verdict: str | None = None,
    approved: bool = False,
    since: datetime | None = None,
    until: datetime | None = None,
    by_source: bool = False,
) -> Iterator[dict[str, Any]]:
    """Stream every matching artifact, the newest first or, with `by_source`, sorted by source."""
    wanted = {**jobs.parameters(), "since": since, "until": until, "job_id": None, "verdict": verdict, "limit": None}
    wanted |= {"by_source": by_source, "approved": approved, **_after(None)}
    with engine.connect().execution_options(yield_per=500) as connection:
        for row in connection.execute(statement("admin/list_artifacts"), wanted):
            yield _artifact(row)


def _after(place: Place | None) -> dict[str, Any]:
    at, job_id, attempt = place or (None, None, None)
    return {"after_at": at, "after_job": job_id, "after_attempt": attempt}


def _artifact(row: Row[Any]) -> dict[str, Any]:
    """The row with the seed of its attempt, and with the texts last."""
    values = dict(row._mapping)
    texts = {name: values.pop(name) for name in ("created_at", "body", "text")}
    return {**values, "seed": attempt_seed(values["job_id"], values["attempt"]), **texts}
