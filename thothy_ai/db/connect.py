"""Engines to Postgres, sync and async: timeouts everywhere, and one typed error when it cannot be reached.

A server that accepts no writes counts as unreachable: the primary is elsewhere, and a new connection finds it. Each
session sets what the code relies on, so that neither a database's nor a role's defaults matter.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

from sqlalchemy import Engine, ExceptionContext, create_engine, event
from sqlalchemy.exc import DBAPIError, InvalidatePoolError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from thothy_ai.db.driver import (
    POOL_SECONDS,
    AsyncConnection,
    AsyncPool,
    Connection,
    MomentLoader,
    Pool,
    accepts_no_writes,
)
from thothy_ai.db.revisions import code_revision
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
    import psycopg
    from sqlalchemy.engine.interfaces import DBAPIConnection
    from sqlalchemy.ext.asyncio import AsyncEngine
    from sqlalchemy.pool import ConnectionPoolEntry, PoolProxiedConnection

CONNECT_TIMEOUT = 5  # seconds; libpq rounds 1 up to 2
ANSWER_SECONDS = 15.0  # for one statement, unless a caller allows more
ANSWER_MARGIN = 5.0  # seconds added to a statement's limit in Postgres while waiting for its answer
USER_TIMEOUT = 30_000  # milliseconds that sent data may go unacknowledged: keepalives only notice an idle connection
# Postgres' side of the connection: a client whose machine is gone must not keep its locks for hours.
SERVER_OPTIONS = "-c tcp_keepalives_idle=30 -c tcp_keepalives_interval=10 -c tcp_keepalives_count=3"

READ_ONLY = "25006"
REFUSED = "42501"  # insufficient privilege, or a row that a policy refuses
LOGIN_ADVICE = (
    "correct the user or the password in THOTHY_DATABASE_URL (or THOTHY_DATABASE_PASSWORD), or admit it in pg_hba.conf"
)
# By SQLSTATE or its class, what keeps Postgres from working, and what helps:
# https://www.postgresql.org/docs/current/errcodes-appendix.html
OBSTACLES: dict[str, tuple[str, str | None]] = {
    "08": ("cannot be reached", None),
    READ_ONLY: ("accepts no writes", "name the primary in THOTHY_DATABASE_URL"),
    "25P03": ("ended the connection", None),
    "28": ("refused the login", LOGIN_ADVICE),
    "3D": ("has no such database", "create it, or correct its name in THOTHY_DATABASE_URL"),
    "53": ("is out of resources", "see its log, and give it more"),
    "53100": ("has no disk space left", "free space on the disk of Postgres, or extend it"),
    "53300": (
        "has no connection left",
        "raise max_connections in Postgres or the limit of its role, or close clients that are not needed",
    ),
    "57": ("ended the statement or the connection", None),
    "57P03": ("accepts no connections", "wait until it does: it starts, stops or recovers, and its log says why"),
}
# Recognized by their words, since a client that connects gets no code: Postgres' and pgbouncer's.
MESSAGES_WITHOUT_CODE = (
    (r"authentication failed|no password supplied|no such user", "28P01"),
    (r'no pg_hba\.conf entry|role ".*" (does not exist|is not permitted to log in)', "28000"),
    (r'database ".*" does not exist|no such database', "3D000"),
    (r"permission denied for database", REFUSED),
    (r"No space left on device|Disk quota exceeded", "53100"),
    (r"too many (clients|connections)|connection slots are reserved|no more connections allowed", "53300"),
    (r"the database system is |not (yet |currently )?accepting connections", "57P03"),
    (r"session is read-only|server is in hot standby mode", READ_ONLY),
)
SEVERAL_ATTEMPTS = "All failures were:\n"  # psycopg's, before a line per host
ATTEMPT = re.compile(
    r"^- host: '?(.*?)'?, port: '?(\d+)'?, hostaddr: (?:'[^']*'|None): (.*?)(?=^- host: |\Z)", re.MULTILINE | re.DOTALL
)
# Errors of a lost server or role: statements on its other connections would fail as well.
LOST = {READ_ONLY, "57P01", "57P02", "57P03", "57P04", "57P05"}
SCHEMA_STATES = {"42P01", "42703"}  # undefined table, undefined column
STARTUP_REFUSED = "unsupported startup parameter"  # what pgbouncer says of `options`
PRODUCER = "producer"  # the application whose statements need no session: they name the schema

# What the code relies on. A pooler in transaction mode restores the first group for each client, and only these.
FORMATS = {"datestyle": "ISO, MDY", "intervalstyle": "postgres", "timezone": "UTC", "standard_conforming_strings": "on"}
SESSION = {
    "bytea_output": "hex",
    "default_transaction_isolation": "read committed",
    "default_transaction_deferrable": "off",
    "statement_timeout": "0",
    "lock_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
    "idle_session_timeout": "0",
}
TRANSACTION_TIMEOUT_SINCE = 170000
# For a process whose transactions take milliseconds: while it is suspended amid one (SIGSTOP, a machine that sleeps),
# Postgres, which waits for the next statement or for its answer to be read, ends the transaction.
SHORT_TRANSACTIONS = {"idle_in_transaction_session_timeout": "10s", "tcp_user_timeout": f"{USER_TIMEOUT}ms"}


def make_engine(
    settings: Settings,
    *,
    application: str = "thothy",
    pool_size: int = 5,
    answer_seconds: float | None = ANSWER_SECONDS,
    session: Mapping[str, str] = MappingProxyType({}),
) -> Engine:
    """A pooled engine; nothing is connected yet. Unqualified names are those of the settings' schema.

    A statement that is not answered within `answer_seconds` fails as one to an unreachable server; `within` sets other
    limits. `session`: parameters of Postgres for each connection. Raises `ConfigError` when no database is set, or when
    it is behind a pooler that this application cannot use.
    """
    with _driver():
        options = _options(settings, application, pool_size)
        engine = create_engine(settings.require_database_url(), poolclass=Pool, **options)

    def connect(_dialect: object, _record: object, arguments: list[Any], parameters: dict[str, Any]) -> Connection:
        connection = Connection.connect(*arguments, **parameters)
        connection.answer_seconds = answer_seconds
        return connection

    event.listen(engine, "do_connect", connect)
    _keep_sessions(engine, settings, session)
    return engine


def make_async_engine(
    settings: Settings,
    *,
    application: str,
    pool_size: int = 5,
    answer_seconds: float | None = ANSWER_SECONDS,
    session: Mapping[str, str] = MappingProxyType({}),
) -> AsyncEngine:
    """The async twin of `make_engine`."""
    from sqlalchemy.ext.asyncio import create_async_engine  # noqa: PLC0415 - slow to import, and rarely needed

    async def connect(conninfo: str = "", **parameters: Any) -> AsyncConnection:  # noqa: ANN401 - psycopg's
        connection = await AsyncConnection.connect(conninfo, **parameters)
        connection.answer_seconds = answer_seconds
        return connection

    with _driver():
        options = _options(settings, application, pool_size)
        options["connect_args"]["async_creator_fn"] = connect
        engine = create_async_engine(settings.require_database_url(), poolclass=AsyncPool, **options)
    _keep_sessions(engine.sync_engine, settings, session)
    return engine


def _keep_sessions(engine: Engine, settings: Settings, session: Mapping[str, str]) -> None:
    """Set up each session as the code relies on it, and drop sessions to a server that lost its role."""
    mode = settings.database_pooler

    def begin(connection: DBAPIConnection, record: ConnectionPoolEntry) -> None:
        record.info["new"] = True
        cast("psycopg.Connection", record.driver_connection).adapters.register_loader(MomentLoader.TYPE, MomentLoader)
        wanted = FORMATS | (_session_defaults(settings) if mode == "session" else {})
        if mode != "transaction" and connection.info.server_version >= TRANSACTION_TIMEOUT_SINCE:
            wanted["transaction_timeout"] = "0"
        wanted |= session
        before, connection.autocommit = connection.autocommit, True  # a rollback would undo it
        with closing(connection.cursor()) as cursor:
            cursor.execute("; ".join(f"SET {name} = '{value}'" for name, value in wanted.items()))
        connection.autocommit = before

    def check(_connection: DBAPIConnection, record: ConnectionPoolEntry, _proxy: PoolProxiedConnection) -> None:
        # A new connection to a standby may be intended; a reused one may be outdated.
        if not record.info.pop("new", False) and accepts_no_writes(
            cast("psycopg.Connection", record.driver_connection)
        ):
            raise InvalidatePoolError("the server accepts no writes any more")

    def judge(context: ExceptionContext) -> None:
        if getattr(context.original_exception, "sqlstate", None) in LOST:
            context.is_disconnect = True

    event.listen(engine, "connect", begin)
    event.listen(engine, "checkout", check)
    event.listen(engine, "handle_error", judge)


def _options(settings: Settings, application: str, pool_size: int) -> dict[str, Any]:
    name = application.removeprefix("thothy-")
    return {
        "pool_size": pool_size,
        "pool_pre_ping": True,
        "use_native_hstore": False,  # looking its type up would be a statement of each process
        "hide_parameters": True,  # requests and outputs do not belong in a log
        "connect_args": {
            "connect_timeout": CONNECT_TIMEOUT,
            "client_encoding": "utf8",
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
        defaults = _session_defaults(settings).items()
        escaped = ["-c {}={}".format(name, value.replace(" ", "\\ ")) for name, value in defaults]
        return {"options": " ".join((SERVER_OPTIONS, *escaped))}
    if settings.database_pooler == "session":
        return {}
    if application != PRODUCER:
        where = endpoint(settings.require_database_url())
        raise PoolerError(f"THOTHY_DATABASE_POOLER says that {where} is a pooler in transaction mode")
    return {"prepare_threshold": None}


def _session_defaults(settings: Settings) -> dict[str, str]:
    return SESSION | {"search_path": settings.database_schema}


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
        raise DatabaseError(f"no database connection came free within {POOL_SECONDS:g} s") from error


def _translated(error: DBAPIError, settings: Settings) -> DatabaseError:
    where = endpoint(settings.require_database_url())
    message = str(error.orig).strip() or type(error.orig).__name__
    cause = message.splitlines()[0].strip()
    state: str | None = getattr(error.orig, "sqlstate", None) or getattr(error.orig, "pgcode", None)  # of psycopg 2
    if STARTUP_REFUSED in message:
        return PoolerError(f"the pooler at {where} refuses the options of a connection, such as its search path")
    connecting = isinstance(error, OperationalError) and error.statement is None
    broke = isinstance(error, OperationalError) and error.connection_invalidated
    unreached = state is None and (connecting or broke)
    if unreached:
        state = next((code for words, code in MESSAGES_WITHOUT_CODE if re.search(words, message)), None)
        cause = _cause_of_all(message)
    if state == REFUSED:
        return PermissionDeniedError(cause, settings.tenant, state)
    if state in SCHEMA_STATES:
        return MigrationsBehindError(None, code_revision(), state, schema=settings.database_schema)
    says, advice = OBSTACLES.get(state or "") or OBSTACLES.get((state or "")[:2]) or (None, None)
    if says is not None:
        return DatabaseUnreachableError(f"Postgres at {where} {says}: {cause}", state, advice)
    if unreached:
        return DatabaseUnreachableError(f"Postgres cannot be reached at {where}: {cause}")
    return DatabaseError(f"Postgres at {where} refused a statement: {cause}", state)


def _cause_of_all(message: str) -> str:
    """Why no connection was opened, or why one broke: the hosts' common cause, or the cause of each."""
    attempts = ATTEMPT.findall(message.partition(SEVERAL_ATTEMPTS)[2]) or [("", "", message)]
    causes = {}
    for host, port, text in attempts:
        lines = text.strip().splitlines()
        last = ([line for line in lines if " failed: " in line] or lines[:1])[-1]  # the other lines are hints
        causes[f"{host}:{port}"] = " ".join(last.rpartition(" failed: ")[2].split())  # without the address
    if len(set(causes.values())) == 1:
        return next(iter(causes.values()))
    return "; ".join(f"{place}: {cause}" for place, cause in causes.items())
