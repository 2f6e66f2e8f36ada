"""Defaults of a database, a role or an environment that the code does not share: each session sets its own."""

from __future__ import annotations

import asyncio
import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pydantic import SecretStr
from sqlalchemy import Engine, make_url, text

from tests.conftest import Services
from tests.support.echo_kind import Echo
from tests.support.pgbouncer import pgbouncer
from tests.support.queue_bench import PATIENCE, Queue, eventually, runner_bench
from thothy_ai.admin.doctor.stores import postgres
from thothy_ai.db.connect import make_async_engine, make_engine
from thothy_ai.db.migration import migrate
from thothy_ai.errors import ConfigError, ResultTimeoutError
from thothy_ai.producer import EnqueueOptions, Producer
from thothy_ai.settings import Settings

HOSTILE = {
    "DateStyle": "'SQL, DMY'",
    "IntervalStyle": "'iso_8601'",
    "TimeZone": "'America/Lima'",
    "bytea_output": "'escape'",
    "standard_conforming_strings": "off",
    "default_transaction_isolation": "serializable",
    "default_transaction_deferrable": "on",
    "client_encoding": "'LATIN1'",
    "search_path": "pg_catalog",
    "statement_timeout": "'7s'",
    "lock_timeout": "'7s'",
    "idle_in_transaction_session_timeout": "'7s'",
    "idle_session_timeout": "'7s'",
    "transaction_timeout": "'7s'",
}
OWN = {
    "DateStyle": "ISO, MDY",
    "IntervalStyle": "postgres",
    "TimeZone": "UTC",
    "bytea_output": "hex",
    "standard_conforming_strings": "on",
    "transaction_isolation": "read committed",
    "transaction_deferrable": "off",
    "client_encoding": "UTF8",
    "statement_timeout": "0",
    "lock_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
    "idle_session_timeout": "0",
    "transaction_timeout": "0",
}
PER_CLIENT = {"DateStyle", "IntervalStyle", "TimeZone", "standard_conforming_strings", "client_encoding"}


@pytest.fixture
def hostile(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> Queue:
    """A database with every default changed, in an environment that changes more."""
    database = make_url(queue.settings.require_database_url()).database
    with queue.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        for name, value in HOSTILE.items():
            connection.execute(text(f"ALTER DATABASE {database} SET {name} = {value}"))
    for name, value in {"CLIENTENCODING": "LATIN1", "DATESTYLE": "German", "TZ": "Asia/Tokyo"}.items():
        monkeypatch.setenv(f"PG{name}", value)
    queue.engine.dispose()
    return queue


def shown(engine: Engine) -> dict[str, str]:
    with engine.connect() as connection:
        return {name: str(connection.scalar(text(f"SHOW {name}"))) for name in OWN}


def test_every_session_sets_what_the_code_relies_on(hostile: Queue) -> None:
    assert shown(hostile.engine) == OWN

    async def shown_on_a_loop() -> dict[str, str]:
        engine = make_async_engine(hostile.settings, application="worker")
        async with engine.connect() as connection:
            found = {name: str(await connection.scalar(text(f"SHOW {name}"))) for name in OWN}
        await engine.dispose()
        return found

    assert asyncio.run(shown_on_a_loop()) == OWN


def test_jobs_go_through_a_database_with_other_defaults(hostile: Queue) -> None:
    deadline = datetime.now(UTC) + timedelta(hours=1)
    with runner_bench(hostile) as bench, Producer(hostile.settings) as producer:
        options = EnqueueOptions(deadline=deadline)
        [job] = producer.enqueue_many([(Echo(text="ok – naïve 猫 €"), options)])
        bench.settle()
        assert producer.snapshot(job.id).deadline == deadline
        assert hostile.count("succeeded") == 1


@pytest.mark.parametrize("mode", ["session", "transaction"])
def test_sessions_behind_a_pooler_set_what_it_keeps_for_them(hostile: Queue, tmp_path: Path, mode: str) -> None:
    with pgbouncer(hostile.settings.require_database_url(), tmp_path, mode=mode, ignore="extra_float_digits") as url:
        settings = Settings.load(home=tmp_path, database_url=url, database_pooler=mode)
        engine = make_engine(settings, application="producer")
        kept = OWN.keys() if mode == "session" else PER_CLIENT
        with engine.connect() as first, engine.connect() as second:
            for _ in range(3):
                for connection in (first, second):
                    found = {name: str(connection.scalar(text(f"SHOW {name}"))) for name in kept}
                    assert found == {name: OWN[name] for name in kept}
                    connection.rollback()
        engine.dispose()


@pytest.fixture
def many_files() -> Iterator[None]:
    """More open files than `select` can name."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
    with ExitStack() as stack:
        for _ in range(600):
            for end in socket.socketpair():
                stack.callback(end.close)
        yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("many_files")
def test_waiters_and_leaders_work_with_more_than_1024_open_files(queue: Queue) -> None:
    database = make_url(queue.settings.require_database_url()).database
    sessions = "SELECT count(*) FROM pg_stat_activity WHERE datname = :name"
    with runner_bench(queue) as bench, Producer(queue.settings) as producer:
        job = producer.enqueue(Echo(text="ok"))
        with pytest.raises(ResultTimeoutError):
            job.result(timeout=0.3)
        eventually(producer._listener.start)  # it listens, and does not fail again and again
        bench.settle()
        assert job.result(timeout=PATIENCE)
        with queue.engine.connect() as connection:
            assert connection.scalar(text(sessions), {"name": database}) < 12


def test_a_database_that_is_not_utf_8_is_refused(services: Services, settings: Settings) -> None:
    services.postgres.execute(
        "CREATE DATABASE latin ENCODING 'LATIN1' LOCALE_PROVIDER libc LOCALE 'C' TEMPLATE template0"
    )
    changed = settings.model_copy(update={"database_url": SecretStr(services.postgres.url_of("latin"))})
    with pytest.raises(ConfigError, match="the encoding LATIN1: use one made with CREATE DATABASE"):
        migrate(changed)
    assert "the database has the encoding LATIN1" in [each.says for each in postgres(changed)]
