"""Pausing the queue: nothing new is dispatched, dispatched jobs are taken back, running jobs finish."""

from __future__ import annotations

import time
from collections.abc import Iterator

from sqlalchemy import Engine

from thothy_ai.db.statements import statement
from thothy_ai.queue.control import set_paused

POLL_SECONDS = 0.5


def pause_and_wait(engine: Engine, *, note: str | None = None) -> Iterator[int]:
    """Pause the queue; yields how many jobs run until none does. The queue stays paused, even if iteration stops
    early."""
    set_paused(engine, paused=True, note=note)
    while True:
        with engine.begin() as connection:
            now = connection.execute(statement("admin/recall_dispatched")).one()
        yield now.running
        if not now.running and not now.dispatched:
            return
        time.sleep(POLL_SECONDS)
