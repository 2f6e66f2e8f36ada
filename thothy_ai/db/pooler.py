"""Tells a pooler in transaction mode from Postgres: the service's processes need sessions of their own.

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
    where = endpoint(settings.require_database_url())
    engine = make_engine(settings, application="check", pool_size=2)
    try:
        with reaching(settings), engine.connect() as first:
            if first.scalar(SEARCH_PATH) != settings.database_schema:
                raise PoolerError(f"the pooler at {where} drops the search path of a connection")
            first.rollback()
            # A pooler invents the backend that it names when a connection is opened.
            driver = first.connection.driver_connection
            if driver is not None and driver.info.backend_pid == _backend(first):
                return
            with engine.connect() as second:
                for _ in range(ROUNDS):
                    if _backend(first) == _backend(second):
                        raise PoolerError(f"{where} is a pooler in transaction mode")
    finally:
        engine.dispose()


def refuse_undeclared_mode(settings: Settings) -> None:
    """Raises `PoolerError` if a pooler that was declared to be in session mode is in transaction mode."""
    if settings.database_pooler == "session":  # any other wrong declaration fails by itself
        refuse_pooler(settings)


def _backend(connection: Connection) -> int:
    found: int = connection.scalar(BACKEND)
    connection.rollback()
    return found
