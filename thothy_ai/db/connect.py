"""Engines to Postgres, sync and async: timeouts everywhere, and one typed error when it cannot be reached."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

from sqlalchemy import Engine, create_engine, event
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from thothy_ai.errors import (
    ConfigError,
    DatabaseError,
    DatabaseUnreachableError,
    MigrationsBehindError,
    PermissionDeniedError,
    PoolerError,
)
from thothy_ai.settings import Settings, endpoint

if TYPE_CHECKING:
    from sqlalchemy.engine.interfaces import DBAPIConnection
    from sqlalchemy.ext.asyncio import AsyncEngine

CONNECT_TIMEOUT = 5  # seconds; libpq rounds 1 up to 2
POOL_TIMEOUT = 30
USER_TIMEOUT = 30_000  # milliseconds that sent data may go unacknowledged: keepalives only notice an idle connection
# Postgres' side of the connection: a client whose machine is gone must not keep its locks for hours.
SERVER_OPTIONS = "-c timezone=UTC -c tcp_keepalives_idle=30 -c tcp_keepalives_interval=10 -c tcp_keepalives_count=3"

# https://www.postgresql.org/docs/current/errcodes-appendix.html
UNREACHABLE_CLASSES = {"08", "28", "3D", "53", "57"}  # connection, login, database, resources, shutdown
READ_ONLY = "25006"  # a standby, or a primary that was demoted: the server that accepts writes is elsewhere
SCHEMA_STATES = {"42P01", "42703"}  # undefined table, undefined column
REFUSED = "42501"  # insufficient privilege, or a row that a policy refuses
STARTUP_REFUSED = "unsupported startup parameter"  # what pgbouncer says of `options`
PRODUCER = "producer"  # the application whose statements need no session: they name the schema


def make_engine(settings: Settings, *, application: str = "thothy", pool_size: int = 5) -> Engine:
    """A pooled engine; nothing is connected yet. Unqualified names are those of the settings' schema.

    Raises `ConfigError` when no database is set, or when it is behind a pooler that this application cannot use.
    """
    with _driver():
        engine = create_engine(settings.require_database_url(), **_options(settings, application, pool_size))
    _begin_sessions(engine, settings, application)
    return engine


def make_async_engine(settings: Settings, *, application: str = "thothy", pool_size: int = 5) -> AsyncEngine:
    """The async twin of `make_engine`."""
    from sqlalchemy.ext.asyncio import create_async_engine  # noqa: PLC0415 - slow to import, and rarely needed

    with _driver():
        engine = create_async_engine(settings.require_database_url(), **_options(settings, application, pool_size))
    _begin_sessions(engine.sync_engine, settings, application)
    return engine


def _begin_sessions(engine: Engine, settings: Settings, application: str) -> None:
    """Behind a pooler in session mode: set with statements what is otherwise set with startup options, which poolers
    refuse. The pooler resets it when the connection is closed. Producers need none of it.
    """
    if settings.database_pooler != "session" or application == PRODUCER:
        return

    def begin(connection: DBAPIConnection, _record: object) -> None:
        before, connection.autocommit = connection.autocommit, True  # a rollback would undo it
        with closing(connection.cursor()) as cursor:
            cursor.execute(f"SET search_path = {settings.database_schema}; SET timezone = 'UTC'")
        connection.autocommit = before

    event.listen(engine, "connect", begin)


def _options(settings: Settings, application: str, pool_size: int) -> dict[str, Any]:
    name = application.removeprefix("thothy-")
    return {
        "pool_size": pool_size,
        "pool_timeout": POOL_TIMEOUT,
        "pool_pre_ping": True,
        "use_native_hstore": False,  # looking its type up would be a statement of each process
        "hide_parameters": True,  # requests and outputs do not belong in a log
        "connect_args": {
            "connect_timeout": CONNECT_TIMEOUT,
            "application_name": f"{settings.database_schema}-{name}",
            "keepalives_idle": 30,
            "keepalives_interval": 10,
            "keepalives_count": 3,
            "tcp_user_timeout": USER_TIMEOUT,
            **_session(settings, name),
        },
    }


def _session(settings: Settings, application: str) -> dict[str, Any]:
    """What each connection is opened with. A pooler in transaction mode keeps neither options nor prepared statements:
    the next transaction may run on another connection.
    """
    if settings.database_pooler == "none":
        return {"options": f"{SERVER_OPTIONS} -c search_path={settings.database_schema}"}
    if settings.database_pooler == "session":
        return {}
    if application != PRODUCER:
        where = endpoint(settings.require_database_url())
        raise PoolerError(f"THOTHY_DATABASE_POOLER says that {where} is a pooler in transaction mode")
    return {"prepare_threshold": None}


@contextmanager
def _driver() -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        raise ConfigError(f"the Postgres driver cannot be loaded: {error}") from None


@contextmanager
def reaching(settings: Settings) -> Iterator[None]:
    """Turns the driver's errors into ours. The message names host and port, never user or password.

    Raises `DatabaseUnreachableError` when Postgres cannot be reached, closes the connection or accepts no writes,
    `MigrationsBehindError` when a table or a column is missing, `PermissionDeniedError` when the role lacks a right,
    `PoolerError` behind a pooler that was not declared, `DatabaseError` otherwise.
    """
    try:
        yield
    except DBAPIError as error:
        raise _translated(error, settings) from error
    except PoolTimeoutError as error:
        raise DatabaseError(f"no database connection came free within {POOL_TIMEOUT} s") from error


def _translated(error: DBAPIError, settings: Settings) -> DatabaseError:
    where = endpoint(settings.require_database_url())
    lines = str(error.orig).strip().splitlines() or [type(error.orig).__name__]
    first = lines[0].strip()
    state: str | None = getattr(error.orig, "sqlstate", None) or getattr(error.orig, "pgcode", None)  # of psycopg 2
    if STARTUP_REFUSED in str(error.orig):
        return PoolerError(f"the pooler at {where} refuses the options of a connection, such as its search path")
    if state == REFUSED:
        return PermissionDeniedError(first, settings.tenant, state)
    if state in SCHEMA_STATES:
        from thothy_ai.db.revisions import code_revision  # noqa: PLC0415 - Alembic is slow to import, and rarely needed

        return MigrationsBehindError(None, code_revision(), state, schema=settings.database_schema)
    if state is not None and (state == READ_ONLY or state[:2] in UNREACHABLE_CLASSES):
        return DatabaseUnreachableError(f"Postgres cannot be reached at {where}: {first}", state)
    no_statement = isinstance(error, OperationalError) and error.statement is None  # connecting failed
    broke = isinstance(error, OperationalError) and error.connection_invalidated
    if state is None and (no_statement or broke):
        # The last line that names a cause, without libpq's hint and without the server's address.
        causes = [line for line in lines if "Is the server running" not in line] or lines
        cause = " ".join(causes[-1].rpartition(" failed: ")[2].split())
        return DatabaseUnreachableError(f"Postgres cannot be reached at {where}: {cause}")
    return DatabaseError(f"Postgres at {where} refused a statement: {first}", state)
