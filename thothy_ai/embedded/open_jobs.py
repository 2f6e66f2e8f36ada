"""`OpenJobs`: what a stack asks of, and does to, the open jobs of its own database while no process serves them."""

from __future__ import annotations

from contextlib import suppress

from sqlalchemy import Engine

from thothy_ai.db.connect import make_engine, reaching
from thothy_ai.db.statements import statement
from thothy_ai.errors import DatabaseError
from thothy_ai.settings import Settings


class OpenJobs:
    """Access to the jobs that have not ended. Methods raise `DatabaseError` unless they say otherwise."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._engine: Engine = make_engine(settings, application="stack", pool_size=1)

    def running(self) -> int | None:
        """How many jobs run; None if Postgres does not answer."""
        return self._asked("embedded/count_running")

    def count(self) -> int | None:
        """How many jobs have not ended; None if Postgres does not answer."""
        return self._asked("embedded/count_open")

    def requeue(self, *, deaths: int = 0) -> int:
        """Queue running and dispatched jobs again, and charge no failure; returns how many ran.

        `deaths`: 1 if the stack was killed while they ran, which quarantines them as an engine's death does. Only for a
        time when no worker can run: jobs that a worker still runs would run twice.
        """
        return self._ask("embedded/requeue", deaths=deaths)

    def end_sessions(self) -> None:
        """End the sessions of the engines of a stack that was killed. One that lives on opens its own again."""
        with reaching(self._settings), self._engine.begin() as connection:
            connection.execute(statement("queue/end_sessions"), {"silence_seconds": 0})

    def cancel(self) -> int:
        """Cancel all waiting jobs; returns how many."""
        return self._ask("embedded/cancel_open")

    def close(self) -> None:
        """Close the connection."""
        self._engine.dispose()

    def _ask(self, name: str, **values: int) -> int:
        with reaching(self._settings), self._engine.begin() as connection:
            return int(connection.execute(statement(name), values).scalar_one())

    def _asked(self, name: str) -> int | None:
        with suppress(DatabaseError):
            return self._ask(name)
        return None
