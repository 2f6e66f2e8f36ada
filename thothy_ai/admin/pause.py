"""Bringing the queue to rest: nothing new is dispatched, what waits for a worker is taken back, what runs finishes."""

from __future__ import annotations

import time
from collections.abc import Iterator

from sqlalchemy import Engine

from thothy_ai.db.statements import statement
from thothy_ai.queue.control import set_paused

POLL_SECONDS = 0.5


def pause_and_wait(engine: Engine, *, note: str | None = None) -> Iterator[int]:
    """Pause the queue; how many jobs run, again and again until none does. Whoever stops asking leaves it paused."""
    set_paused(engine, paused=True, note=note)
    while True:
        with engine.begin() as connection:
            now = connection.execute(statement("queue_recall")).one()
        yield now.running
        if not now.running and not now.dispatched:
            return
        time.sleep(POLL_SECONDS)
