"""Checks that a database's schema is at the revision that this code needs."""

from __future__ import annotations

from contextlib import suppress

from sqlalchemy import Connection, text

from thothy_ai.db.connect import make_engine, reaching
from thothy_ai.db.pooler import refuse_pooler
from thothy_ai.db.revisions import code_revision
from thothy_ai.errors import (
    CodeBehindError,
    DatabaseUnreachableError,
    MigrationsBehindError,
    NotInstalledError,
)
from thothy_ai.settings import Settings

MONTHS_AHEAD = 3
ENCODING = "UTF8"
ENCODING_ADVICE = "use one made with CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0"
# Where Alembic records it; its search path may lead to an application's own record, too.
RECORD = text("SELECT to_regclass(quote_ident(current_schema()) || '.alembic_version')")
REVISION = text("SELECT version_num FROM alembic_version")
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


def check_schema(settings: Settings) -> str:
    """The database's revision, when it is the code's.

    Raises `NotInstalledError`, `MigrationsBehindError` or `CodeBehindError`.
    """
    engine = make_engine(settings, application="check")
    try:
        with reaching(settings), engine.connect() as connection:
            found = database_revision(connection)
            others = connection.scalars(INSTALLED).all() if found is None else ()
    finally:
        engine.dispose()
    wanted = code_revision()
    if found == wanted:
        return wanted
    if found is None:
        raise NotInstalledError(settings.database_schema, others, wanted)
    if found > wanted:
        raise CodeBehindError(found, wanted)
    raise MigrationsBehindError(found, wanted)


def database_revision(connection: Connection) -> str | None:
    """The revision of the schema that `connection` uses; None if nothing is installed there."""
    return connection.scalar(REVISION) if connection.scalar(RECORD) else None


def refuse_other_schema(settings: Settings) -> None:
    """Every process of the service checks this first. An unreachable Postgres is no error: processes wait for it.

    Raises as `check_schema` does, except `DatabaseUnreachableError`, and `PoolerError`.
    """
    with suppress(DatabaseUnreachableError):
        refuse_pooler(settings)
        check_schema(settings)
