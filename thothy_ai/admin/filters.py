"""Selects the jobs that a command is about, by filters and short ids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import Engine

from thothy_ai.db.statements import statement
from thothy_ai.errors import AmbiguousIdError, UnknownJobError

ANY_END = "*"  # after the beginning of a key, stands for any end
ID_DIGITS = 32
MAX_CANDIDATES = 5  # named in an error


@dataclass(frozen=True, slots=True)
class JobFilter:
    """Jobs that match every given criterion; without any, all jobs.

    `key` is an idempotency key, or its beginning and `*`. `source` is a source key or its beginning. `parent` is the
    job that a follow-up came from. `batch` is any job of an enqueue call, and stands for all jobs of that call;
    `batch_id` is the id of a batch over HTTP, or of a call with a webhook.
    """

    states: Sequence[str] = ()
    kind: str | None = None
    key: str | None = None
    source: str | None = None
    parent: UUID | None = None
    batch: UUID | None = None
    tenant: str | None = None
    model: str | None = None
    reason: str | None = None
    batch_id: UUID | None = None

    def parameters(self) -> dict[str, Any]:
        """Parameters of the fragment `selected_jobs`, and of the columns that statements compare in addition."""
        beginning = self.key is not None and self.key.endswith(ANY_END)
        return {
            "states": list(self.states) or None,
            "kind": self.kind,
            "key": None if beginning else self.key,
            "key_start": (self.key or "").removesuffix(ANY_END) if beginning else None,
            "source": self.source,
            "parent": self.parent,
            "batch": self.batch,
            "tenant": self.tenant,
            "model": self.model,
            "reason": self.reason,
            "batch_id": self.batch_id,
        }


ALL_JOBS = JobFilter()


def kinds_in_use(engine: Engine) -> list[str]:
    """The kinds of all jobs in the database, sorted. Reads the whole table."""
    with engine.connect() as connection:
        return list(connection.scalars(statement("admin/kinds")))


def engine_names(engine: Engine) -> list[str]:
    """The engines that sent a heartbeat within the last day, sorted."""
    with engine.connect() as connection:
        return list(connection.scalars(statement("admin/engine_names")))


def reasons_in_use(engine: Engine) -> list[str]:
    """The reasons of all jobs in the database, sorted. Reads the whole table."""
    with engine.connect() as connection:
        return list(connection.scalars(statement("admin/reasons")))


@dataclass(frozen=True, slots=True)
class RecentJob:
    id: UUID
    kind: str
    state: str


def resolve_id(engine: Engine, ref: str) -> UUID:
    """The id that equals `ref`, or begins or ends with it. `ref`: lower-case hexadecimal digits and hyphens.

    A whole id is returned even if there is no such job. Raises `UnknownJobError` and `AmbiguousIdError`.
    """
    digits = ref.replace("-", "")
    if len(digits) == ID_DIGITS:
        return UUID(digits)
    wanted = {
        "digits": digits,
        "least": UUID(digits.ljust(ID_DIGITS, "0")),
        "greatest": UUID(digits.ljust(ID_DIGITS, "f")),
        "limit": MAX_CANDIDATES + 1,
    }
    with engine.connect() as connection:
        ids = connection.scalars(statement("admin/ids_like"), wanted).all()
    if not ids:
        raise UnknownJobError(ref)
    if len(ids) > 1:
        raise AmbiguousIdError(ref, sorted(ids)[:MAX_CANDIDATES], more=len(ids) > MAX_CANDIDATES)
    return UUID(str(ids[0]))


def recent_jobs(engine: Engine, limit: int) -> list[RecentJob]:
    with engine.connect() as connection:
        return [RecentJob(*row) for row in connection.execute(statement("admin/recent_ids"), {"limit": limit})]
