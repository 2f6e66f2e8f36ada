"""A queue under test: quick settings, a producer of echo jobs, and what Postgres holds of them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol
from unittest.mock import patch
from uuid import UUID

from sqlalchemy import Engine, text

from tests.support.echo_kind import Echo
from tests.support.engine_rows import register_first
from tests.support.fake_engine import FakeClient
from tests.support.inline_judges import InlineJudges
from tests.support.patience import PATIENCE
from thothy_ai.db.statements import statement
from thothy_ai.plans.judges import Judges
from thothy_ai.producer import Producer
from thothy_ai.queue.dispatches import Dispatch, Dispatches
from thothy_ai.queue.hints import Hint, ListLengths
from thothy_ai.settings import Settings
from thothy_ai.worker.loop import WorkerLoop

QUICK = {
    "kinds": ("tests.support.echo_kind",),
    "engine_url": "unix:///nowhere/engine.sock",
    "worker_in_flight": 16,
    "judges": 1,  # a process of each worker, and none of these tests is about a second one
    "lease_seconds": 5,  # of a worker that waits for a core, too
    "heartbeat_seconds": 0.2,
    "shutdown_deadline_seconds": 5,
    "retry_base_seconds": 0.05,
    "dispatch_interval_seconds": 0.05,
    "dispatch_timeout_seconds": 5,  # of a worker that starts, too
    "reap_interval_seconds": 0.3,
}


def eventually(holds: Callable[[], object], seconds: float = PATIENCE) -> None:
    """Wait until it holds."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, f"still not so after {seconds} s"
        time.sleep(0.02)


class Loop(Protocol):
    """A dispatcher or a reaper."""

    def run(self) -> None: ...
    def stop(self) -> None: ...


@contextmanager
def running(loop: Loop) -> Iterator[None]:
    """On a thread of its own."""
    thread = threading.Thread(target=loop.run)
    thread.start()
    try:
        yield
    finally:
        loop.stop()
        thread.join(PATIENCE)
        assert not thread.is_alive()


class Queue:
    """Echo jobs, and every table about them."""

    def __init__(self, settings: Settings, engine: Engine, producer: Producer) -> None:
        self.settings = settings
        self.engine = engine
        self.producer = producer

    def enqueue(self, *texts: str, **options: Any) -> list[UUID]:
        return [self.producer.enqueue(Echo(text=text), **options).id for text in texts]

    def rows(self, query: str, **parameters: Any) -> list[Any]:
        with self.engine.begin() as connection:
            done = connection.execute(text(query), parameters)
            return list(done) if done.returns_rows else []

    def ask(self, name: str, **parameters: Any) -> Sequence[Any]:
        with self.engine.begin() as connection:
            done = connection.execute(statement(name), parameters)
            return done.all() if done.returns_rows else ()

    def dispatch(self, depth: int = 0, *, places: int = 64, urgent_places: int = 64) -> list[Hint]:
        """Dispatch as if each engine's list had this length."""
        return [hint for each in self.dispatches(depth, places, urgent_places) for hint in each.hints]

    def dispatches(self, depth: int = 0, places: int = 64, urgent_places: int = 64) -> list[Dispatch]:
        """The same, by engine; if none is known, to one that is recorded first."""
        register_first(self)
        made = Dispatches(self.settings.model_copy(update={"dispatch_min_depth": places}), self.ask)
        engines = made.engines()
        depths = {engine.name: ListLengths(depth, 0) for engine in engines}
        return list(made.dispatch(engines, depths, urgent_places))

    def job(self, job_id: UUID) -> Any:
        return self.rows("SELECT * FROM job WHERE id = :id", id=job_id)[0]

    def outcomes(self, job_id: UUID) -> list[str]:
        return [
            row[0] for row in self.rows("SELECT outcome FROM attempt WHERE job_id = :id ORDER BY attempt", id=job_id)
        ]

    def events(self, job_id: UUID) -> list[str]:
        return [row[0] for row in self.rows("SELECT event FROM job_event WHERE job_id = :id ORDER BY at", id=job_id)]

    def verdicts(self, job_id: UUID) -> list[str]:
        query = "SELECT verdict FROM artifact WHERE job_id = :id ORDER BY attempt"
        return [row[0] for row in self.rows(query, id=job_id)]

    def count(self, state: str) -> int:
        return int(self.rows("SELECT count(*) FROM job WHERE state = :state", state=state)[0][0])

    def open(self) -> int:
        return int(self.rows("SELECT count(*) FROM job WHERE finished_at IS NULL")[0][0])


class RunnerBench:
    """A worker's loop without Celery: the test hands it hints itself."""

    def __init__(self, queue: Queue, client: FakeClient, settings: Settings) -> None:
        self.queue = queue
        self.client = client
        self.done: list[Hint] = []
        self.died = threading.Event()
        self.runner = WorkerLoop(settings, f"worker-{id(self)}", lambda _: client, self.done.extend, self.died.set)

    def work(self, *texts: str, **options: Any) -> list[UUID]:
        """Enqueue, dispatch and hand over."""
        ids = self.queue.enqueue(*texts, **options)
        self.hand_over()
        return ids

    def hand_over(self) -> None:
        for hint in self.queue.dispatch():
            self.runner.hand_over(hint)

    def settle(self, seconds: float = PATIENCE) -> None:
        """Dispatch and hand over until nothing is open."""

        def settled() -> bool:
            self.hand_over()
            return not self.queue.open()

        eventually(settled, seconds)


@contextmanager
def runner_bench(
    queue: Queue, client: FakeClient | None = None, *, judges: type[Judges] = InlineJudges, **changes: Any
) -> Iterator[RunnerBench]:
    made = RunnerBench(queue, client or FakeClient(), queue.settings.model_copy(update=changes))
    with patch("thothy_ai.worker.loop.Judges", judges):
        made.runner.start()
        try:
            yield made
        finally:
            made.runner.shut_down(0)
            assert made.runner.join(PATIENCE), "the worker's loop does not end"
    assert not made.died.is_set()
