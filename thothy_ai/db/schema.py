"""Migrates a database's schema to the revision that this code needs, and checks that revision."""

from __future__ import annotations

from contextlib import suppress

from alembic import command
from alembic.runtime.migration import MigrationContext
from alembic.util import CommandError
from sqlalchemy import text

from thothy_ai.crash_points import crash_point
from thothy_ai.db.connect import make_engine, reaching
from thothy_ai.db.pooler import refuse_pooler, refuse_undeclared_mode
from thothy_ai.db.revisions import alembic_config, code_revision, known_revisions
from thothy_ai.db.roles import refresh_roles
from thothy_ai.errors import (
    CodeBehindError,
    ConfigError,
    DatabaseUnreachableError,
    MigrationsBehindError,
    NotInstalledError,
)
from thothy_ai.settings import Settings

MONTHS_AHEAD = 3
ENCODING = "UTF8"
ENCODING_ADVICE = "use one made with CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0"
# Schemas with an installation: an application's own tables are hardly called all of this.
INSTALLED = text(
    """
    SELECT nspname
    FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
    WHERE relname IN ('alembic_version', 'job_request', 'engine_session', 'queue_control')
    GROUP BY nspname
    HAVING count(*) = 4
    ORDER BY nspname
    """
)


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
                return MigrationContext.configure(connection).get_current_revision() or ""
    finally:
        engine.dispose()


def check_schema(settings: Settings) -> str:
    """The database's revision, when it is the code's.

    Raises `NotInstalledError`, `MigrationsBehindError` or `CodeBehindError`.
    """
    engine = make_engine(settings, application="check")
    try:
        with reaching(settings), engine.connect() as connection:
            found = MigrationContext.configure(connection).get_current_revision()
            others = connection.scalars(INSTALLED).all() if found is None else ()
    finally:
        engine.dispose()
    wanted = code_revision()
    if found == wanted:
        return wanted
    if found is None:
        raise NotInstalledError(settings.database_schema, others, wanted)
    if found not in known_revisions():
        raise CodeBehindError(found, wanted)
    raise MigrationsBehindError(found, wanted)


def refuse_other_schema(settings: Settings) -> None:
    """Every process of the service checks this first. An unreachable Postgres is no error: processes wait for it.

    Raises as `check_schema` does, except `DatabaseUnreachableError`, and `PoolerError`.
    """
    with suppress(DatabaseUnreachableError):
        refuse_pooler(settings)
        check_schema(settings)
