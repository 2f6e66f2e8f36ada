"""How Alembic reaches the database: a connection given by `thothy_ai.db.schema`, or one made from the settings.

Each migration is a transaction of its own, so that one may step out of it (`autocommit_block`) to build an index beside
running work. Migrators take turns by an advisory lock of the session.
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

from thothy_ai.crash_points import crash_point
from thothy_ai.db import online
from thothy_ai.db.connect import make_engine
from thothy_ai.db.models import Job
from thothy_ai.settings import Settings

PARTITION = re.compile(r"(attempt|artifact|job_event)_(default|\d{4}_\d{2})")
LOCK = text("SELECT pg_try_advisory_lock(hashtext('thothy_migrate'))")
UNLOCK = text("SELECT pg_advisory_unlock(hashtext('thothy_migrate'))")
# A migration that has its lock is not to be cut off by a limit that a server sets for its clients.
TIMEOUTS = text(f"{online.LIMIT_LOCKS}; SET statement_timeout = 0; SET idle_in_transaction_session_timeout = 0")
RESET = text("RESET lock_timeout; RESET statement_timeout; RESET idle_in_transaction_session_timeout")
TURN_SECONDS = 0.2


def _ours(name: str | None, kind: str, _parents: object) -> bool:
    """Partitions come and go by themselves; the models know only their parents."""
    return not (kind == "table" and name and PARTITION.fullmatch(name))


def _applied(*_: object, **__: object) -> None:
    """A migration's statements are done, and not committed yet."""
    crash_point("mid_migration")


@contextmanager
def _one_at_a_time(connection: Connection) -> Iterator[None]:
    """Asks again and again: a statement that waits holds a snapshot, and CREATE INDEX CONCURRENTLY waits for that."""
    while not connection.scalar(LOCK):
        connection.rollback()
        time.sleep(TURN_SECONDS)
    connection.commit()
    try:
        yield
    finally:
        with suppress(SQLAlchemyError):  # the connection is gone, and its lock with it
            connection.rollback()
            connection.execute(RESET)
            connection.execute(UNLOCK)
            connection.commit()


def _run(connection: Connection) -> None:
    """Every migration that is due. One that cannot get a lock tries again, with time for those who waited behind it."""
    until = time.monotonic() + online.PATIENCE_SECONDS
    with _one_at_a_time(connection):
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
        target_metadata=Job.metadata,
        include_name=_ours,
        compare_server_default=True,
        transaction_per_migration=True,
        on_version_apply=_applied,
    )
    with context.begin_transaction():
        context.run_migrations()


if given := context.config.attributes.get("connection"):
    _run(given)
else:
    with make_engine(Settings.load(), application="migrate").connect() as opened:
        _run(opened)
