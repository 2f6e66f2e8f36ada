"""The service's own schema: it leaves an application's tables alone, and another installation's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from alembic import command
from sqlalchemy import Engine, create_engine, text

from tests.support.echo_kind import Echo
from tests.support.patience import PATIENCE
from tests.support.queue_bench import QUICK
from thothy_ai.db.connect import make_engine
from thothy_ai.db.migration import alembic_config, migrate
from thothy_ai.db.revisions import code_revision
from thothy_ai.db.statements import statement
from thothy_ai.errors import ConfigError
from thothy_ai.jobs import registry
from thothy_ai.producer import Producer
from thothy_ai.settings import Settings

TABLES = "SELECT relname FROM pg_class WHERE relnamespace = to_regnamespace(:schema) AND relkind IN ('r', 'p')"
THEIRS = """
    CREATE TABLE alembic_version (version_num varchar(32) PRIMARY KEY);
    INSERT INTO alembic_version VALUES ('{version}');
    CREATE TABLE job (id uuid PRIMARY KEY, tenant text, kind text, state text, salary int);
    INSERT INTO job VALUES (gen_random_uuid(), 'acme', 'baker', 'open', 7);
    CREATE TABLE attempt (id int); CREATE TABLE artifact (id int);
"""


@pytest.fixture
def empty(empty_database: str, clean_environment: None) -> Settings:
    registry.load_extra(("tests.support.echo_kind",))
    return Settings.load(database_url=empty_database, **QUICK)


@pytest.fixture
def plain(empty: Settings) -> Iterator[Engine]:
    """Connections as an application opens them: their search path is the server's default."""
    engine = create_engine(empty.require_database_url())
    yield engine
    engine.dispose()


def names(engine: Engine, query: str, schema: str) -> set[str]:
    with engine.connect() as connection:
        return set(connection.scalars(text(query), {"schema": schema}))


def run(engine: Engine, sql: str, **parameters: Any) -> list[Any]:
    with engine.begin() as connection:
        done = connection.execute(text(sql), parameters)
        return list(done) if done.returns_rows else []


def test_an_application_s_tables_of_the_same_names_stay(empty: Settings, plain: Engine) -> None:
    """Whatever its revision is called, and before and after the schema is migrated up, down and up."""
    for sql in THEIRS.format(version="0001").split(";"):
        if sql.strip():
            run(plain, sql)
    before = names(plain, TABLES, "public")
    migrate(empty)
    with Producer(empty) as producer:
        producer.enqueue(Echo(text="ok"))
    assert run(plain, "SELECT salary FROM public.job") == [(7,)]
    assert run(plain, "SELECT version_num FROM public.alembic_version") == [("0001",)]
    engine = make_engine(empty)
    with engine.connect() as connection:
        command.downgrade(alembic_config(connection, empty.database_schema), "base")
    engine.dispose()
    assert names(plain, TABLES, "public") == before
    assert names(plain, TABLES, "thothy") == {"alembic_version"}
    assert migrate(empty) == code_revision()
    assert run(plain, "SELECT salary FROM public.job") == [(7,)]


def test_two_installations_in_one_database_do_not_meet(empty: Settings, plain: Engine) -> None:
    other = empty.model_copy(update={"database_schema": "second"})
    for settings in (empty, other):
        migrate(settings)
    with plain.connect().execution_options(isolation_level="AUTOCOMMIT") as listener:
        for channel in ("thothy_queued", "second_queued"):
            listener.execute(text(f"LISTEN {channel}"))
        with Producer(other) as producer:
            job = producer.enqueue(Echo(text="ok"), idempotency_key="k")
        driver: Any = listener.connection.driver_connection
        assert [note.channel for note in driver.notifies(timeout=PATIENCE, stop_after=1)] == ["second_queued"]
    assert run(plain, "SELECT id FROM second.job") == [(job.id,)]
    assert run(plain, "SELECT id FROM thothy.job") == []
    with ExitStack() as held:
        assert [_quarantine(settings, held) for settings in (empty, other, other)] == [True, True, False]


def _quarantine(settings: Settings, held: ExitStack) -> bool:
    """Whether it gets the lock while those before it hold theirs."""
    engine = make_engine(settings)
    held.callback(engine.dispose)
    connection = held.enter_context(engine.connect())
    return bool(connection.execute(statement("worker/quarantine_lock"), {"engine_session_id": None}).one().acquired)


@pytest.mark.parametrize(
    "schema", ["public", "pg_catalog", "pg_temp", "information_schema", "a b", "A", "1a", "a" * 41, 'a"']
)
def test_a_schema_must_be_one_that_nothing_else_uses(clean_environment: None, schema: str) -> None:
    with pytest.raises(ConfigError, match="THOTHY_DATABASE_SCHEMA: must be"):
        Settings.load(database_schema=schema)
