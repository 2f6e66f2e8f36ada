"""How Alembic reaches the database: a connection given by `thothy_ai.db.migration`, or one made from the settings.

Each migration is a transaction of its own, so that it can leave it (`autocommit_block`) to build an index concurrently.
Concurrent migrators are serialized by an advisory lock of the session.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from alembic import context
from psycopg.errors import LockNotAvailable
from sqlalchemy import Connection, text
from sqlalchemy.exc import OperationalError, SQLAlchemyError
from sqlalchemy.schema import CreateSchema

from thothy_ai.crash_points import crash_point
from thothy_ai.db import online
from thothy_ai.db.connect import make_engine
from thothy_ai.db.models import JobRow
from thothy_ai.settings import Settings

PARTITION = re.compile(r"(attempt|artifact|job_event)_(default|\d{4}_\d{2})")
LOCK = text("SELECT pg_try_advisory_lock(hashtext(:name))")
UNLOCK = text("SELECT pg_advisory_unlock(hashtext(:name))")
# A migration that has its lock must not be cut off by a timeout that the server sets for its clients.
TIMEOUTS = text(f"{online.LIMIT_LOCKS}; SET statement_timeout = 0; SET idle_in_transaction_session_timeout = 0")
RESET = "SET search_path = {}; RESET lock_timeout; RESET statement_timeout; RESET idle_in_transaction_session_timeout"
TURN_SECONDS = 0.2


def _ours(name: str | None, kind: str, _parents: object) -> bool:
    """Partitions are created and dropped at run time; the models only have their parents."""
    return not (kind == "table" and name and PARTITION.fullmatch(name))


def _applied(*_: object, **__: object) -> None:
    """A migration's statements have run, and are not committed yet."""
    crash_point("mid_migration")


@contextmanager
def _one_at_a_time(connection: Connection, schema: str) -> Iterator[None]:
    """Polls for the lock: a waiting statement would hold a snapshot, for which CREATE INDEX CONCURRENTLY waits."""
    name = {"name": f"{schema}_migrate"}
    while not connection.scalar(LOCK, name):
        connection.rollback()
        time.sleep(TURN_SECONDS)
    connection.commit()
    try:
        yield
    finally:
        with suppress(SQLAlchemyError):  # the connection is gone, and its lock with it
            connection.rollback()
            connection.execute(text(RESET.format(schema)))
            connection.execute(UNLOCK, name)
            connection.commit()


def _run(connection: Connection, schema: str) -> None:
    """Run all pending migrations. One that cannot get a lock is retried after a pause for the statements behind it."""
    until = time.monotonic() + online.PATIENCE_SECONDS
    with _one_at_a_time(connection, schema):
        if not connection.scalar(text("SELECT to_regnamespace(:schema) IS NOT NULL"), {"schema": schema}):
            connection.execute(CreateSchema(schema))
        connection.execute(text(f"SET search_path = {schema}"))
        connection.commit()
        while True:
            try:
                return _try(connection)
            except OperationalError as error:
                if not isinstance(error.orig, LockNotAvailable) or time.monotonic() > until:
                    raise
            connection.rollback()
            time.sleep(online.PAUSE_SECONDS)


def _try(connection: Connection) -> None:
    connection.execute(TIMEOUTS)
    connection.commit()
    context.configure(
        connection,
        target_metadata=JobRow.metadata,
        include_name=_ours,
        compare_server_default=True,
        transaction_per_migration=True,
        on_version_apply=_applied,
    )
    with context.begin_transaction():
        context.run_migrations()


if given := context.config.attributes.get("connection"):
    _run(given, context.config.attributes["schema"])
else:
    settings = Settings.load()
    with make_engine(settings, application="migrate").connect() as opened:
        _run(opened, settings.database_schema)
