"""Artifacts, accepted and rejected: listed, or streamed."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Engine

from thothy_ai.db.statements import statement


def list_artifacts(
    engine: Engine,
    *,
    job_id: UUID | None = None,
    kind: str | None = None,
    verdict: str | None = None,
    since: datetime | None = None,
    limit: int | None = 20,
) -> list[dict[str, Any]]:
    """Artifacts, accepted and rejected, the newest first."""
    wanted = {"job_id": job_id, "kind": kind, "verdict": verdict, "since": since, "limit": limit}
    with engine.connect() as connection:
        return [dict(row._mapping) for row in connection.execute(statement("admin/list_artifacts"), wanted)]


def stream_artifacts(
    engine: Engine, *, kind: str | None = None, verdict: str | None = None, since: datetime | None = None
) -> Iterator[dict[str, Any]]:
    """Every matching artifact, the newest first, without holding all of them in memory."""
    wanted = {"job_id": None, "kind": kind, "verdict": verdict, "since": since, "limit": None}
    with engine.connect().execution_options(yield_per=500) as connection:
        for row in connection.execute(statement("admin/list_artifacts"), wanted):
            yield dict(row._mapping)
