"""A streaming standby of an embedded Postgres."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, LiteralString

import psycopg

from tests.support.queue_bench import eventually
from thothy_ai.embedded import Postgres
from thothy_ai.embedded.process import free_port

WRITTEN = "SELECT pg_current_wal_insert_lsn()"  # with synchronous_commit off, what is committed is written later
WRITERS = """
    SELECT count(*) FROM pg_stat_activity
    WHERE backend_type = 'client backend' AND xact_start < %s AND (state = 'active' OR backend_xid IS NOT NULL)
"""


class Standby:
    """Follows `primary` until it is promoted. `port` accepts connections all the time."""

    def __init__(self, primary: Postgres, folder: Path) -> None:
        self._primary, self._cluster = primary, primary._cluster
        self.port = free_port()
        self._data = folder / "standby"
        self._environment = os.environ | {"PGPASSWORD": self._cluster.password}
        source = f"host=127.0.0.1 port={primary.port} user=thothy"
        self._run("pg_basebackup", "-D", self._data, "-d", source, "-R", "-X", "stream", "-c", "fast")
        options = {"listen_addresses": "127.0.0.1", "port": self.port, "unix_socket_directories": "", "fsync": "off"}
        options |= {"max_connections": 200, "io_method": "sync", "shared_buffers": "64MB"}
        settings = [part for name, value in options.items() for part in ("-c", f"{name}={value}")]
        uid, gid = self._cluster.account or (None, None)
        with (folder / "standby.log").open("wb") as log:
            command = [self._cluster.binaries / "postgres", "-D", self._data, *settings]
            self.process = subprocess.Popen(command, stdout=log, stderr=log, user=uid, group=gid)
        eventually(self._answers)

    def promote(self) -> None:
        """Make it the primary; its former primary accepts no writes any more, and keeps its connections."""
        self._primary.execute("ALTER SYSTEM SET default_transaction_read_only = on")
        self._primary.execute("SELECT pg_reload_conf()")
        eventually(lambda: self._scalar("SHOW default_transaction_read_only", self._primary.port) == "on")
        # Transactions that began before may still write, and the standby would lose what they commit after it.
        since = self._scalar("SELECT clock_timestamp()", self._primary.port)
        eventually(lambda: not self._scalar(WRITERS, self._primary.port, [since]))
        caught_up = "SELECT pg_wal_lsn_diff(pg_last_wal_replay_lsn(), %s::pg_lsn) >= 0"
        eventually(lambda: self._scalar(caught_up, parameters=[self._scalar(WRITTEN, self._primary.port)]))
        self._run("pg_ctl", "promote", "-D", self._data)

    def _run(self, program: str, *arguments: object) -> None:
        uid, gid = self._cluster.account or (None, None)
        command = [self._cluster.binaries / program, *map(str, arguments)]
        subprocess.run(command, env=self._environment, check=True, user=uid, group=gid, capture_output=True)

    def _scalar(self, query: LiteralString, port: int | None = None, parameters: Sequence[object] = ()) -> Any:
        password = self._cluster.password
        place = {"host": "127.0.0.1", "port": port or self.port, "dbname": "postgres"}
        with psycopg.connect(user="thothy", password=password, **place) as connection:
            row = connection.execute(query, parameters).fetchone()
            assert row
            return row[0]

    def _answers(self) -> bool:
        try:
            return self._scalar("SELECT pg_is_in_recovery()")
        except psycopg.OperationalError:
            return False


@contextmanager
def standby(primary: Postgres, folder: Path) -> Iterator[Standby]:
    """`folder` must be one that the account of the servers can write to."""
    if (account := primary._cluster.account) is not None:
        os.chown(folder, *account)
    running = Standby(primary, folder)
    try:
        yield running
    finally:
        running.process.send_signal(signal.SIGQUIT)
        running.process.wait()
        shutil.rmtree(folder / "standby")
