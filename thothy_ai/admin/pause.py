"""Waiting until a paused queue is idle: dispatched jobs are taken back, running jobs finish."""

from __future__ import annotations

import time
from collections.abc import Iterator

from sqlalchemy import Engine

from thothy_ai.db.statements import statement

POLL_SECONDS = 0.5


def until_idle(engine: Engine) -> Iterator[int]:
    """Take dispatched jobs of a paused queue back; yields how many jobs run until none does."""
    while True:
        with engine.begin() as connection:
            now = connection.execute(statement("admin/recall_dispatched")).one()
        yield now.running
        if not now.running and not now.dispatched:
            return
        time.sleep(POLL_SECONDS)
