"""A real pgbouncer in front of a test's database, on a free port of 127.0.0.1."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from sqlalchemy import make_url

from tests.support.fetched import fetched
from tests.support.queue_bench import eventually
from thothy_ai.embedded.process import free_port

CONFIGURATION = """
[databases]
{database} = host={host} port={port} user={user} password={password} {query}

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {listen}
unix_socket_dir =
auth_type = any
pool_mode = {mode}
default_pool_size = {size}
ignore_startup_parameters = {ignore}
"""


@contextmanager
def pgbouncer(
    url: str, folder: Path, *, mode: str = "transaction", size: int = 3, ignore: str = "", query: str = ""
) -> Iterator[str]:
    """The URL of the same database through a pgbouncer. `size`: most connections to Postgres.

    `ignore`: startup parameters that it drops without a word. `query`: what it runs on each connection to Postgres.
    """
    direct = make_url(url)
    listen = free_port()
    file = folder / f"pgbouncer-{listen}.ini"
    connect_query = f"connect_query='{query}'" if query else ""
    file.write_text(
        CONFIGURATION.format(
            database=direct.database,
            host=direct.host,
            port=direct.port,
            user=direct.username,
            password=direct.password,
            query=connect_query,
            listen=listen,
            mode=mode,
            size=size,
            ignore=ignore,
        )
    )
    account = ("-u", "nobody") if os.geteuid() == 0 else ()  # it refuses to run as root
    command = [fetched("fetch-pgbouncer"), *account, file]
    log = file.with_suffix(".log")
    with log.open("wb") as output, subprocess.Popen(command, stdout=output, stderr=output) as process:
        pooled = direct.set(port=listen)
        plain = pooled.set(drivername="postgresql").render_as_string(hide_password=False)
        try:
            eventually(lambda: _answers(process, plain))
            yield pooled.render_as_string(hide_password=False)
        finally:
            process.terminate()
            process.wait()
            print(log.read_text())  # noqa: T201 - shown when the test failed


def _answers(process: subprocess.Popen[bytes], url: str) -> bool:
    assert process.poll() is None, "pgbouncer has ended"
    try:
        psycopg.connect(url).close()
    except psycopg.OperationalError:
        return False
    return True
