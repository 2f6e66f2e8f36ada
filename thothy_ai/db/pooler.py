"""Tells a pooler in transaction mode from Postgres: the service's processes need sessions that stay theirs.

They hold advisory locks, listen for notifications and set a search path, each of which belongs to a session. A pooler
in session mode keeps all three.
"""

from __future__ import annotations

from sqlalchemy import Connection, text

from thothy_ai.db.connect import make_engine, reaching
from thothy_ai.errors import PoolerError
from thothy_ai.settings import Settings, endpoint

ROUNDS = 5  # other clients may take the server connection between two of ours
BACKEND = text("SELECT pg_backend_pid()")
SEARCH_PATH = text("SELECT current_setting('search_path')")


def refuse_pooler(settings: Settings) -> None:
    """Raises `PoolerError` if two open connections share one of Postgres, or if their options were ignored."""
    engine = make_engine(settings, application="check", pool_size=2)
    try:
        with reaching(settings), engine.connect() as first:
            if first.scalar(SEARCH_PATH) != settings.database_schema:
                raise PoolerError(f"the pooler at {_where(settings)} drops the search path of a connection")
            first.rollback()
            if not _is_direct(first):
                with engine.connect() as second:
                    _refuse_shared(settings, first, second)
    finally:
        engine.dispose()


def refuse_undeclared_mode(settings: Settings) -> None:
    """Raises `PoolerError` if a pooler that was declared to be in session mode is in transaction mode."""
    if settings.database_pooler == "session":  # any other wrong declaration fails by itself
        refuse_pooler(settings)


def _is_direct(connection: Connection) -> bool:
    """Whether the backend is the one that answered when the connection was opened; a pooler invents one of its own."""
    driver = connection.connection.driver_connection
    direct: bool = driver is not None and driver.info.backend_pid == connection.scalar(BACKEND)
    connection.rollback()
    return direct


def _refuse_shared(settings: Settings, first: Connection, second: Connection) -> None:
    for _ in range(ROUNDS):
        backends = set()
        for connection in (first, second):
            backends.add(connection.scalar(BACKEND))
            connection.rollback()
        if len(backends) == 1:
            raise PoolerError(f"{_where(settings)} is a pooler in transaction mode")


def _where(settings: Settings) -> str:
    return endpoint(settings.require_database_url())
