"""Errors of Postgres as the service's own: unreachable, schema too old, or a statement refused; with the SQLSTATE."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import psycopg
import pytest
from sqlalchemy import Engine, make_url, text

from tests.conftest import Services
from tests.support.queue_bench import eventually
from thothy_ai.admin.doctor import Level, examine, stores
from thothy_ai.cli.views.stopping import StopRequested
from thothy_ai.db.connect import make_engine, reaching
from thothy_ai.errors import DatabaseError, DatabaseUnreachableError, MigrationsBehindError
from thothy_ai.settings import Settings


def _run(settings: Settings, engine: Engine, *statements: str, **parameters: object) -> None:
    with reaching(settings), engine.connect() as connection:
        for statement in statements:
            connection.execute(text(statement), parameters)


def _refusal(settings: Settings, engine: Engine, *statements: str, **parameters: object) -> DatabaseError:
    with pytest.raises(DatabaseError) as caught:
        _run(settings, engine, *statements, **parameters)
    return caught.value


def test_both_ends_of_a_connection_notice_that_the_other_is_gone(engine: Engine) -> None:
    with engine.connect() as connection:
        driver: Any = connection.connection.dbapi_connection
        assert "tcp_user_timeout=30000" in driver.info.dsn
        asked = {name: connection.scalar(text(f"SHOW tcp_keepalives_{name}")) for name in ("idle", "interval", "count")}
    assert asked == {"idle": "30", "interval": "10", "count": "3"}


@pytest.mark.parametrize(
    ("statements", "kind", "sqlstate"),
    [
        (["SELECT 1/0"], DatabaseError, "22012"),
        (["SET TRANSACTION READ ONLY", "CREATE TABLE t ()"], DatabaseUnreachableError, "25006"),
        (["SELECT pg_terminate_backend(pg_backend_pid())"], DatabaseUnreachableError, "57P01"),
        (["SELECT 1 FROM no_such_table"], MigrationsBehindError, "42P01"),
        (["SELECT no_such_column FROM job"], MigrationsBehindError, "42703"),
    ],
)
def test_a_refusal_is_recognized_by_its_code(
    settings: Settings, engine: Engine, statements: list[str], kind: type[DatabaseError], sqlstate: str
) -> None:
    refusal = _refusal(settings, engine, *statements)
    assert (type(refusal), refusal.sqlstate) == (kind, sqlstate)
    assert len(str(refusal).splitlines()) == 1


ROLE = "LOGIN PASSWORD 'sesame'"


@pytest.mark.parametrize(
    ("login", "prepare", "says", "sqlstate"),
    [
        ("{user}:wrong@", "", "refused the login: FATAL: password authentication failed", "28P01"),
        ("{user}@", "", "refused the login: fe_sendauth: no password supplied", "28P01"),
        ("nobody_here:x@", "", "refused the login: FATAL: password authentication failed", "28P01"),
        ("asked:sesame@", "CREATE ROLE asked PASSWORD 'sesame'", "refused the login: FATAL: role", "28000"),
        (
            "asked:sesame@",
            f"CREATE ROLE asked {ROLE} CONNECTION LIMIT 0",
            "has no connection left: FATAL: too",
            "53300",
        ),
        ("{user}:{password}@", "", 'has no such database: FATAL: database "missing" does not exist', "3D000"),
    ],
)
@pytest.mark.parametrize("before", ["", "127.0.0.1:9,"], ids=["alone", "after a host that is away"])
def test_why_no_connection_is_opened(
    settings: Settings, services: Services, login: str, prepare: str, says: str, sqlstate: str, before: str
) -> None:
    url = make_url(settings.require_database_url())
    login = login.format(user=url.username, password=url.password)
    database = "missing" if "missing" in says else url.database
    refused = Settings.load(
        home=settings.home, database_url=f"postgresql://{login}{before}127.0.0.1:{url.port}/{database}"
    )
    if prepare:
        services.postgres.execute(prepare)
    try:
        engine = make_engine(refused)
        refusal = _refusal(refused, engine, "SELECT 1")
    finally:
        services.postgres.execute("DROP ROLE IF EXISTS asked")
    assert (type(refusal), refusal.sqlstate) == (DatabaseUnreachableError, sqlstate)
    if before:
        assert f"127.0.0.1:9, 127.0.0.1:{url.port}" in str(refusal)
        assert "127.0.0.1:9: Connection refused; " in str(refusal)
    else:
        assert str(refusal).startswith(f"Postgres at 127.0.0.1:{url.port} {says}")
    (finding,) = examine(lambda: refused, ["postgres"])
    assert finding.level is Level.WRONG
    assert not str(finding.fix).startswith("start Postgres")


def test_a_full_disk_is_named(settings: Settings, services: Services, engine: Engine) -> None:
    _fill_disk(settings, services, engine)
    refusal = _refusal(settings, engine, "INSERT INTO written VALUES (1)")
    assert (type(refusal), refusal.sqlstate) == (DatabaseUnreachableError, "53100")
    assert "has no disk space left: could not extend file" in str(refusal)


def test_the_doctor_writes_to_the_disk(
    settings: Settings, services: Services, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert [finding.level for finding in examine(lambda: settings, ["postgres"])] == [Level.OK]
    _fill_disk(settings, services, engine)
    monkeypatch.setattr(stores, "WRITE", "INSERT INTO written VALUES (1)")
    (*_, finding) = examine(lambda: settings, ["postgres"])
    assert "has no disk space left" in finding.says
    assert str(finding.fix).startswith("free space on the disk of Postgres")


def _fill_disk(settings: Settings, services: Services, engine: Engine) -> None:
    """Make a table whose file cannot grow: it is the device that is always full."""
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE written (n int)"))
        path = connection.scalar(text("SELECT pg_relation_filepath('written')"))
    engine.dispose()  # a session keeps the file open
    file = services.postgres._cluster.data / str(path)
    file.unlink()
    file.symlink_to("/dev/full")


def test_too_many_parameters_do_not_make_postgres_unreachable(settings: Settings, engine: Engine) -> None:
    names = [f"p{number}" for number in range(65_536)]
    marks = ", ".join(f"CAST(:{name} AS int)" for name in names)
    refusal = _refusal(settings, engine, f"SELECT 1 WHERE 1 IN ({marks})", **dict.fromkeys(names, 1))
    assert (type(refusal), refusal.sqlstate) == (DatabaseError, None)


SLEEP = "SELECT pg_sleep(600)"


@pytest.mark.parametrize("interruption", [StopRequested, KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("within_ping", [False, True])
def test_an_interruption_during_a_statement_is_raised_as_it_is(
    settings: Settings,
    engine: Engine,
    monkeypatch: pytest.MonkeyPatch,
    interruption: type[BaseException],
    *,
    within_ping: bool,
) -> None:
    """So that a command that is stopped ends by its own rules. The next statement gets its own answer."""
    _run(settings, engine, "SELECT 1")  # the next time, its connection is pinged first
    with monkeypatch.context() as patched:
        if within_ping:
            patched.setattr(engine.dialect, "_dialect_specific_select_one", SLEEP)
        with _interrupted_in_its_sleep(settings, interruption), pytest.raises(interruption):
            _run(settings, engine, SLEEP)
    with engine.connect() as connection:
        assert connection.scalar(text("SELECT 2")) == 2


@contextmanager
def _interrupted_in_its_sleep(settings: Settings, interruption: type[BaseException]) -> Iterator[None]:
    """A signal raises this in the main thread once Postgres executes the statement."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise interruption

    def wait_and_signal() -> None:
        url = settings.require_database_url().replace("+psycopg", "")
        with psycopg.connect(url, autocommit=True) as connection:
            asleep = "SELECT count(*) FROM pg_stat_activity WHERE query = %s AND wait_event = 'PgSleep'"
            eventually(lambda: connection.execute(asleep, [SLEEP]).fetchone() == (1,))
        os.kill(os.getpid(), signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, interrupt)
    watching = threading.Thread(target=wait_and_signal)
    watching.start()
    try:
        yield
    finally:
        watching.join()
        signal.signal(signal.SIGUSR1, before)
