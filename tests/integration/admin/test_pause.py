"""Pausing the queue and waiting: it reports that no job is running only once none can start any more."""

from __future__ import annotations

import threading

from tests.support.patience import PATIENCE
from tests.support.queue_bench import Queue, eventually
from thothy_ai.admin.drain import until_idle
from thothy_ai.db.statements import statement
from thothy_ai.queue.control import set_paused

WAITS = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"


def test_a_dispatch_that_has_begun_is_waited_for(queue: Queue) -> None:
    """It saw a queue that was not paused, and has not committed yet."""
    ids = queue.enqueue("one", "two")
    said: list[int] = []

    def pause() -> None:
        set_paused(queue.engine, paused=True)
        said.extend(until_idle(queue.engine))

    pausing = threading.Thread(target=pause)
    with queue.engine.begin() as dispatcher:
        assert len(dispatcher.execute(statement("queue/dispatch"), {"ids": ids, "engine": ""}).all()) == 2
        pausing.start()
        eventually(lambda: queue.rows(WAITS))
    pausing.join(PATIENCE)
    assert said[-1] == 0
    assert (queue.count("dispatched"), queue.count("queued")) == (0, 2)


def test_a_dispatch_that_comes_too_late_finds_the_queue_paused(queue: Queue) -> None:
    """Its snapshot is older than the pause: only the lock tells it."""
    ids = queue.enqueue("one")
    dispatched: list[object] = []
    dispatcher = threading.Thread(target=lambda: dispatched.extend(queue.ask("queue/dispatch", ids=ids, engine="")))
    with queue.engine.begin() as operator:
        operator.execute(statement("queue/pause"), {"paused": True, "note": None})
        dispatcher.start()
        eventually(lambda: queue.rows(WAITS))
    dispatcher.join(PATIENCE)
    assert dispatched == []
    set_paused(queue.engine, paused=False)
    assert len(queue.dispatch()) == 1
