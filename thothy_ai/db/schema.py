"""Migrates a database's schema to the revision that this code needs, and checks that revision."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import Connection, text

from thothy_ai.crash_points import crash_point
from thothy_ai.db.connect import make_engine, reaching
from thothy_ai.db.pooler import refuse_pooler, refuse_undeclared_mode
from thothy_ai.db.roles import refresh_roles
from thothy_ai.errors import CodeBehindError, DatabaseUnreachableError, MigrationsBehindError, NotInstalledError
from thothy_ai.settings import Settings

MIGRATIONS = Path(__file__).parents[1] / "migrations"
MONTHS_AHEAD = 3
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


def alembic_config(connection: Connection | None = None, schema: str = "") -> Config:
    """Alembic's configuration, from the packaged migrations; for this connection and schema, or those of settings."""
    config = Config(MIGRATIONS / "alembic.ini")
    if connection is not None:
        config.attributes.update(connection=connection, schema=schema)
    return config


def code_revision() -> str:
    """The revision this code was written for."""
    return ScriptDirectory.from_config(alembic_config()).get_current_head() or ""


def migrate(settings: Settings, revision: str = "head") -> str:
    """Create the schema, upgrade it to `revision`, create the partitions of the coming months. Returns the revision.

    Concurrent callers wait for each other; an interrupted migration continues where it was. Raises
    `DatabaseUnreachableError`, `DatabaseError` when a lock could not be acquired, `CodeBehindError` and `PoolerError`.
    """
    refuse_undeclared_mode(settings)
    engine = make_engine(settings, application="migrate")
    try:
        with reaching(settings):
            with engine.connect() as connection:  # migrations begin and commit their own transactions
                _upgrade(connection, settings, revision)
            crash_point("before_partitions")
            with engine.begin() as connection:
                connection.execute(text("SELECT thothy_ensure_partitions(:months)"), {"months": MONTHS_AHEAD})
                refresh_roles(connection)
                return MigrationContext.configure(connection).get_current_revision() or ""
    finally:
        engine.dispose()


def _upgrade(connection: Connection, settings: Settings, revision: str) -> None:
    try:
        command.upgrade(alembic_config(connection, settings.database_schema), revision)
    except CommandError:
        check_schema(settings)  # a revision that only a newer version knows is the usual cause
        raise


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
    known = ScriptDirectory.from_config(alembic_config()).walk_revisions()
    if found not in {script.revision for script in known}:
        raise CodeBehindError(found, wanted)
    raise MigrationsBehindError(found, wanted)


def refuse_other_schema(settings: Settings) -> None:
    """Checked first by every process of the service. Postgres may still be away: processes wait for it themselves.

    Raises as `check_schema` does, except `DatabaseUnreachableError`, and `PoolerError`.
    """
    with suppress(DatabaseUnreachableError):
        refuse_pooler(settings)
        check_schema(settings)
