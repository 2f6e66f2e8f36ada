"""The artifacts that wait for a person, and decisions on them, for operators. Tenant None stands for all tenants."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar
from uuid import UUID

from sqlalchemy import Engine

from thothy_ai.db.statements import statement
from thothy_ai.db.states import ReviewState
from thothy_ai.producer import operations
from thothy_ai.producer.decisions import CurrentVersion, Decision
from thothy_ai.producer.operations import Query, Rows, Transaction, drive, rows_of
from thothy_ai.queue.edits import CheckedEdit

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class WaitingArtifact:
    """A job whose artifact a person can decide on. `review` is `clean` if no check has found anything."""

    job_id: UUID
    kind: str
    tenant: str
    review: str
    version: int
    deadline: datetime | None
    finished_at: datetime
    idempotency_key: str | None


def review_queue(
    engine: Engine,
    reviews: Sequence[ReviewState] = (ReviewState.NEEDS_REVIEW, ReviewState.NEEDS_EDIT),
    *,
    clean_since: datetime | None = None,
    kind: str | None = None,
    tenant: str | None = None,
    limit: int | None = None,
) -> list[WaitingArtifact]:
    """The waiting artifacts, the earliest deadline first. With `clean_since`, also clean ones that ended since then."""
    wanted: dict[str, Any] = {"reviews": list(reviews), "clean_since": clean_since, "kind": kind, "tenant": tenant}
    with engine.connect() as connection:
        rows = connection.execute(statement("admin/review_queue"), wanted | {"limit": limit})
        return [WaitingArtifact(*row) for row in rows]


def current_version(engine: Engine, job_id: UUID, tenant: str | None = None) -> CurrentVersion:
    """The version of a job's artifact that awaits a decision. Raises `UnknownJobError`."""
    return _transact(engine, tenant, operations.current_version(job_id))


def decide(
    engine: Engine,
    job_id: UUID,
    version: int,
    decision: Decision,
    checked: CheckedEdit | None,
    tenant: str | None = None,
) -> CurrentVersion:
    """Decide on this version; `checked` is the edit, if there is one. Returns the version that awaits a decision next.

    Raises the errors of `JobArtifact.decide`.
    """
    return _transact(engine, tenant, operations.decide(job_id, version, decision, checked))


def _transact(engine: Engine, tenant: str | None, operation: Transaction[T]) -> T:
    with engine.begin() as connection:

        def execute(query: Query) -> Rows:
            return rows_of(connection.execute(statement(query.name), {**query.parameters, "tenant": tenant}))

        return drive(operation, execute)
