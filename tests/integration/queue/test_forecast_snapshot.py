"""A forecast reads the database as it is at one moment, whoever makes it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from uuid import UUID

from sqlalchemy import Engine, event, insert, update

from tests.support.forecast_rows import history, job, recorded, resident
from tests.support.queue_bench import eventually, running
from thothy_ai.db.models import AttemptRow, JobRow
from thothy_ai.db.statements import statement
from thothy_ai.queue.forecast.forecaster import Forecaster
from thothy_ai.queue.forecast.store import current
from thothy_ai.settings import Settings


@contextmanager
def ends_between_two_statements(engine: Engine, job_id: UUID, session: UUID) -> Iterator[None]:
    """The job and its attempt end as soon as any process has asked for the attempts that ended."""
    attempts = str(statement("forecast/attempts").compile(dialect=engine.dialect))
    ended = datetime.now(UTC)  # in time for the observation: the transaction that ends it has begun
    fixed = {"tenant": "t", "kind": "hook", "worker": "w", "engine_session_id": session, "compute_seconds": 1.0}
    values = {"started_at": ended, "finished_at": ended, "outcome": "succeeded", **fixed}
    asked = []

    def end(_connection: object, _cursor: object, asks: str, *_: object) -> None:
        if asks == attempts and not asked:
            asked.append(asks)
            with engine.begin() as connection:
                connection.execute(insert(AttemptRow), {"job_id": job_id, "attempt": 1, **values})
                done = {"state": "succeeded", "worker": None, "lease_until": None, "finished_at": ended}
                connection.execute(update(JobRow).where(JobRow.id == job_id).values(**done))

    event.listen(Engine, "after_cursor_execute", end)
    try:
        yield
    finally:
        event.remove(Engine, "after_cursor_execute", end)
    assert asked


def run_since_now(engine: Engine) -> UUID:
    now = datetime.now(UTC)
    return job(engine, "running", worker="w", started_at=now, lease_until=now + timedelta(hours=1))


def test_a_job_that_ends_while_a_forecast_reads_is_running_in_all_of_it(engine: Engine) -> None:
    session = resident(engine)
    history(engine, session)
    with ends_between_two_statements(engine, run_since_now(engine), session):
        assert current(engine).open_jobs == 1
    assert current(engine).open_jobs == 0


def test_a_job_that_ends_while_the_forecaster_reads_is_running_in_all_of_it(engine: Engine, settings: Settings) -> None:
    session = resident(engine)
    history(engine, session)
    with ends_between_two_statements(engine, run_since_now(engine), session), running(Forecaster(settings)):
        eventually(lambda: recorded(engine))
    assert recorded(engine)[0].open_jobs == 1
