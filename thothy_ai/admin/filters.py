"""Which jobs a list, an export or a cancellation is about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import Engine

from thothy_ai.db.statements import statement

ANY_END = "*"  # ends a key of which only the beginning is given


@dataclass(frozen=True, slots=True)
class JobFilter:
    """Jobs that match every given criterion; without any, all jobs.

    `key` is an idempotency key, or its beginning and `*`. `source` is a source key or its beginning. `parent` is the
    job that a follow-up came from. `batch` is any job of an enqueue call, and stands for all jobs of that call.
    """

    states: Sequence[str] = ()
    kind: str | None = None
    key: str | None = None
    source: str | None = None
    parent: UUID | None = None
    batch: UUID | None = None
    tenant: str | None = None

    def parameters(self) -> dict[str, Any]:
        """Parameters of the fragment `selected_jobs`, `kind` and `tenant`."""
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
        }


ALL_JOBS = JobFilter()


def kinds_in_use(engine: Engine) -> list[str]:
    """The kinds of all jobs in the database, sorted. Reads the whole table."""
    with engine.connect() as connection:
        return list(connection.scalars(statement("admin/kinds")))


def reasons_in_use(engine: Engine) -> list[str]:
    """The reasons of all jobs in the database, sorted. Reads the whole table."""
    with engine.connect() as connection:
        return list(connection.scalars(statement("admin/reasons")))
