"""The progress of a drain."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Engine

from thothy_ai.db.statements import statement


@dataclass(frozen=True, slots=True)
class Progress:
    """A drain at one moment: open jobs, jobs finished since it began, and when the oldest open one was enqueued."""

    open: int
    finished: int
    oldest: datetime | None
    now: datetime


def progress(engine: Engine, since: datetime | None) -> Progress:
    """The progress of the drain that began at `since` (None: it begins now)."""
    with engine.connect() as connection:
        return Progress(*connection.execute(statement("admin/progress"), {"since": since}).one())
