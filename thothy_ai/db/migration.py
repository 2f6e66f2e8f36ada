"""Migrates a database's schema to the revision that this code needs."""

from __future__ import annotations

from alembic import command
from alembic.config import Config
from alembic.util import CommandError
from sqlalchemy import Connection, text

from thothy_ai.crash_points import crash_point
from thothy_ai.db import revisions
from thothy_ai.db.connect import make_engine, reaching
from thothy_ai.db.pooler import refuse_undeclared_mode
from thothy_ai.db.roles import refresh_roles
from thothy_ai.db.schema import ENCODING, ENCODING_ADVICE, MONTHS_AHEAD, check_schema, database_revision
from thothy_ai.errors import ConfigError
from thothy_ai.settings import Settings


def migrate(settings: Settings, revision: str = "head") -> str:
    """Create the schema, upgrade it to `revision`, create the partitions of the coming months. Returns the revision.

    Concurrent callers wait for each other; an interrupted migration continues where it was. Raises
    `DatabaseUnreachableError`, `DatabaseError` when a lock could not be acquired, `CodeBehindError` and `PoolerError`,
    and `ConfigError` for a database whose encoding is not UTF-8.
    """
    refuse_undeclared_mode(settings)
    engine = make_engine(settings, application="migrate", answer_seconds=None)  # an index may take hours
    try:
        with reaching(settings):
            with engine.connect() as connection:  # migrations begin and commit their own transactions
                if (encoding := connection.scalar(text("SHOW server_encoding"))) != ENCODING:
                    raise ConfigError(f"the database has the encoding {encoding}: {ENCODING_ADVICE}")
                connection.rollback()
                try:
                    command.upgrade(alembic_config(connection, settings.database_schema), revision)
                except CommandError:
                    check_schema(settings)  # a revision that only a newer version knows is the usual cause
                    raise
            crash_point("before_partitions")
            with engine.begin() as connection:
                connection.execute(text("SELECT thothy_ensure_partitions(:months)"), {"months": MONTHS_AHEAD})
                refresh_roles(connection)
                return database_revision(connection) or ""
    finally:
        engine.dispose()


def alembic_config(connection: Connection | None = None, schema: str = "") -> Config:
    """Alembic's configuration, from the packaged migrations; for this connection and schema, or those of settings."""
    config = Config(revisions.MIGRATIONS / "alembic.ini")
    if connection is not None:
        config.attributes.update(connection=connection, schema=schema)
    return config
