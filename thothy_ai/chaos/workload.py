"""`ChaosWorkload`: the jobs of a chaos run, sent while faults are injected. Like a producer in production, it resends a
batch under the same idempotency keys until Postgres confirms it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Self, TypeVar
from uuid import UUID

from sqlalchemy import Engine, TextClause, text

from thothy_ai.admin.jobs import cancel
from thothy_ai.chaos.kind import Chaos
from thothy_ai.db.connect import make_engine, reaching
from thothy_ai.errors import DatabaseError
from thothy_ai.producer import Producer
from thothy_ai.producer.drafts import EnqueueOptions
from thothy_ai.settings import Settings

BATCH = 200
MAX_OPEN = 1_500  # the producer stays this far ahead of the drain
PAUSE = 0.2
DEADLINE = timedelta(seconds=4)
ENDED = text("SELECT count(*) FROM job WHERE parent_id IS NULL AND finished_at IS NOT NULL")
OPEN = text("SELECT count(*) FROM job WHERE finished_at IS NULL")

T = TypeVar("T")


class ChaosWorkload:
    """Sends jobs 1 to `jobs`. Leaving the context stops the sending."""

    def __init__(self, settings: Settings, jobs: int) -> None:
        self.engine: Engine = make_engine(settings, application="chaos")
        self._settings = settings
        self._producer = Producer(settings)
        self._jobs = jobs
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def send(self, first: int, last: int) -> None:
        for start in range(first, last + 1, BATCH):
            self._send_batch(range(start, min(start + BATCH, last + 1)))

    def send_beside(self, first: int) -> None:
        """Send the jobs from `first` on from a thread, never far ahead of the drain, and cancel a few of them."""

        def send_rest() -> None:
            unwanted: list[UUID] = []
            for start in range(first, self._jobs + 1, BATCH):
                while not self._stopping.is_set() and (self.open() or 0) > MAX_OPEN:
                    self._stopping.wait(PAUSE)
                ids = self._send_batch(range(start, min(start + BATCH, self._jobs + 1)))
                self._retry(lambda unwanted=unwanted: cancel(self.engine, unwanted))  # type: ignore[misc]
                unwanted = [job_id for number, job_id in ids.items() if number % 100 == 13]

        self._thread = threading.Thread(target=send_rest, name="chaos-producer", daemon=True)
        self._thread.start()

    def ended(self) -> int | None:
        """How many of the sent jobs have ended; None while Postgres does not answer."""
        return self._count(ENDED)

    def drained(self) -> bool:
        """Whether every job has been sent and has ended, including follow-ups."""
        return self.ended() == self._jobs and self.open() == 0

    def open(self) -> int | None:
        """How many jobs, including follow-ups, have not ended; None while Postgres does not answer."""
        return self._count(OPEN)

    def _count(self, query: TextClause) -> int | None:
        try:
            with reaching(self._settings), self.engine.connect() as connection:
                return int(connection.execute(query).scalar_one())
        except DatabaseError:
            return None

    def _send_batch(self, numbers: range) -> dict[int, UUID]:
        jobs = self._retry(lambda: self._producer.enqueue_many([_job(number) for number in numbers]))
        return {number: job.id for number, job in zip(numbers, jobs or (), strict=False)}

    def _retry(self, ask: Callable[[], T]) -> T | None:
        """The result of `ask` once Postgres answers; None if the run ends first."""
        while not self._stopping.is_set():
            try:
                with reaching(self._settings):
                    return ask()
            except DatabaseError:
                self._stopping.wait(PAUSE)
        return None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()
        self._producer.close()
        self.engine.dispose()


def _job(number: int) -> tuple[Chaos, EnqueueOptions]:
    """A mix: of a hundred jobs, the validator rejects two, two have a follow-up, one has a deadline, ten are urgent."""
    request = Chaos(
        number=number, verdict="rejected" if number % 50 == 7 else "accepted", more=1 if number % 50 == 3 else 0
    )
    deadline = datetime.now(UTC) + DEADLINE if number % 100 == 11 else None
    priority = 5 if number % 10 == 1 else 0
    return request, EnqueueOptions(priority=priority, idempotency_key=f"chaos-{number}", deadline=deadline)
