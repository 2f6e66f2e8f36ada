"""Checks of Postgres, its schema and Redis."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from sqlalchemy import Engine, Row

from thothy_ai.admin.doctor.diagnosis import Diagnosis, Level
from thothy_ai.admin.processes import connected
from thothy_ai.db.connect import make_engine, reaching
from thothy_ai.db.schema import ENCODING, ENCODING_ADVICE, check_schema
from thothy_ai.db.statements import statement
from thothy_ai.errors import BrokerRefusedError, PermissionDeniedError
from thothy_ai.queue.hints import count_waiting
from thothy_ai.queue.redis_server import check_redis, checking_client, reaching_redis
from thothy_ai.settings import Settings, endpoint

MIN_POSTGRES = 150000
LOW_BYTES, NO_BYTES = 1 << 30, 64 << 20  # of a disk, which warn and stop: Postgres writes its log in files of 16 MB
# Half a megabyte into a table of this transaction, on the disk of the database's others; it is rolled back.
WRITE = """
    SET LOCAL temp_tablespaces = '';
    CREATE TEMPORARY TABLE written ON COMMIT DROP AS
    SELECT uuid_send(gen_random_uuid()) AS bytes FROM generate_series(1, 10000)
"""


@contextmanager
def postgres_engine(settings: Settings) -> Iterator[Engine]:
    engine = make_engine(settings, application="doctor", pool_size=1)
    try:
        with reaching(settings):
            yield engine
    finally:
        engine.dispose()


def _one(engine: Engine, name: str) -> Row[Any]:
    with engine.connect() as connection:
        return connection.execute(statement(name)).one()


def postgres(settings: Settings) -> Iterator[Diagnosis]:
    with suppress(OSError):  # Postgres, in the home of a stack, may be unable to say that its disk is full
        if (free := shutil.disk_usage(settings.home).free) < LOW_BYTES:
            says = f"the disk of {settings.home} has only {free / 1e6:,.0f} MB left"
            level = Level.WARNING if free >= NO_BYTES else Level.WRONG
            yield Diagnosis("postgres", level, says, "free space on it, or extend it")
    with postgres_engine(settings) as engine:
        server = _one(engine, "admin/doctor_server")
        if not server.read_only:
            with suppress(PermissionDeniedError), reaching(settings), engine.connect() as connection:
                connection.exec_driver_sql(WRITE)
    where = endpoint(settings.require_database_url())
    yield Diagnosis(
        "postgres",
        Level.OK,
        f"Postgres {server.version} at {where}, {server.connections} of {server.max_connections} connections",
    )
    if server.number < MIN_POSTGRES:
        yield Diagnosis("postgres", Level.WRONG, "Postgres is older than 15", "upgrade Postgres to 15 or newer")
    if server.encoding != ENCODING:
        yield Diagnosis("postgres", Level.WRONG, f"the database has the encoding {server.encoding}", ENCODING_ADVICE)
    if server.read_only:
        yield Diagnosis(
            "postgres", Level.WRONG, "this Postgres is read-only", "name the primary in THOTHY_DATABASE_URL"
        )
    if server.connections > 0.9 * server.max_connections:
        fix = "raise max_connections in Postgres, or close clients that are not needed"
        yield Diagnosis("postgres", Level.WARNING, "connections are running out", fix)


def schema(settings: Settings) -> Iterator[Diagnosis]:
    yield Diagnosis("schema", Level.OK, f"the schema is at revision {check_schema(settings)}")
    with postgres_engine(settings) as engine:
        if not _one(engine, "admin/doctor_server").partitioned:
            says = "history has no partition for next month yet"
            fix = "run `thothy migrate`" + ("" if "reaper" in connected(engine) else ", and start `thothy reaper`")
            yield Diagnosis("schema", Level.WARNING, says, fix)


def redis(settings: Settings) -> Iterator[Diagnosis]:
    with checking_client(settings) as client:
        server = check_redis(client, settings)
        waiting = sum(count_waiting(client, settings))
        where = endpoint(settings.require_redis_url())
        says = f"{server} at {where}, {waiting:,} {'message' if waiting == 1 else 'messages'} waiting"
        yield Diagnosis("redis", Level.OK, says)
        try:
            with reaching_redis(settings):
                info: Any = client.info("memory")
        except BrokerRefusedError as error:  # only the doctor needs it
            says = f"{error.problem}: whether it may evict messages is not known"
            yield Diagnosis("redis", Level.WARNING, says, error.advice)
            return
    if info.get("maxmemory") and info.get("maxmemory_policy") != "noeviction":
        says = f"Redis may evict jobs' messages: its maxmemory-policy is {info['maxmemory_policy']}"
        yield Diagnosis("redis", Level.WARNING, says, "set maxmemory-policy to noeviction")
