"""The service's own schema: an installation in `public` moves there and back, and an application's tables stay."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from alembic import command
from sqlalchemy import Engine, create_engine, text

from tests.support.echo_kind import Echo
from tests.support.queue_bench import PATIENCE, QUICK, eventually
from thothy_ai.db.connect import make_engine
from thothy_ai.db.schema import alembic_config, check_schema, code_revision, migrate
from thothy_ai.db.statements import statement
from thothy_ai.errors import ConfigError, DatabaseError, MigrationsBehindError, SchemaTakenError
from thothy_ai.jobs import registry
from thothy_ai.producer import Producer
from thothy_ai.settings import Settings

TABLES = "SELECT relname FROM pg_class WHERE relnamespace = to_regnamespace(:schema) AND relkind IN ('r', 'p')"
FUNCTIONS = "SELECT proname FROM pg_proc WHERE pronamespace = to_regnamespace(:schema)"
THEIRS = """
    CREATE TABLE alembic_version (version_num varchar(32) PRIMARY KEY);
    INSERT INTO alembic_version VALUES ('{version}');
    CREATE TABLE job (id uuid PRIMARY KEY, tenant text, kind text, state text, salary int);
    INSERT INTO job VALUES (gen_random_uuid(), 'acme', 'baker', 'open', 7);
    CREATE TABLE attempt (id int); CREATE TABLE artifact (id int);
"""
OLD_JOB = """
    INSERT INTO job (id, tenant, kind, source_key, request_digest, max_attempts, idempotency_key)
    VALUES (gen_random_uuid(), 'default', 'echo', 's', 'd', 3, :key)
"""


@pytest.fixture
def empty(empty_database: str, clean_environment: None) -> Settings:
    registry.load_extra(("tests.support.echo_kind",))
    return Settings.load(database_url=empty_database, **QUICK)


@pytest.fixture
def plain(empty: Settings) -> Iterator[Engine]:
    """Connections as an application, and as earlier versions, open them: their search path is the server's default."""
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


@contextmanager
def alembic(settings: Settings, schema: str) -> Iterator[Callable[..., None]]:
    """Alembic's commands, as they ran while everything was in `schema`."""
    engine = create_engine(settings.require_database_url())
    with engine.connect() as connection:
        config = alembic_config(connection, schema)

        def act(action: Callable[..., object], *arguments: str) -> None:
            action(config, *arguments)

        yield act
    engine.dispose()


def install_old(settings: Settings, revision: str = "0006") -> None:
    """An installation in `public`, as earlier versions made it."""
    with alembic(settings, "public") as act:
        act(command.upgrade, revision)
    engine = create_engine(settings.require_database_url())
    run(engine, "SELECT thothy_ensure_partitions(2)")
    run(engine, OLD_JOB, key="old")
    engine.dispose()


@pytest.mark.parametrize("revision", ["0001", "0004", "0006"])
@pytest.mark.parametrize("schema", ["thothy", "content_queue"])
def test_an_installation_in_public_moves_with_its_rows(
    empty: Settings, plain: Engine, revision: str, schema: str
) -> None:
    install_old(empty, revision)
    settings = empty.model_copy(update={"database_schema": schema})
    with pytest.raises(MigrationsBehindError, match="run `thothy migrate`"):
        check_schema(settings)
    assert migrate(settings) == check_schema(settings) == code_revision()
    assert names(plain, TABLES, "public") == names(plain, FUNCTIONS, "public") == set()
    assert {"job", "alembic_version", "attempt_default"} <= names(plain, TABLES, schema)
    assert run(plain, f"SELECT idempotency_key FROM {schema}.job") == [("old",)]
    assert migrate(settings) == code_revision()


def test_an_application_s_tables_of_the_same_names_stay(empty: Settings, plain: Engine) -> None:
    """Whatever its revision is called, and before and after the schema is migrated up, down and up."""
    for sql in THEIRS.format(version="0006").split(";"):
        if sql.strip():
            run(plain, sql)
    before = names(plain, TABLES, "public")
    migrate(empty)
    with Producer(empty) as producer:
        producer.enqueue(Echo(text="ok"))
    assert run(plain, "SELECT salary FROM public.job") == [(7,)]
    assert run(plain, "SELECT version_num FROM public.alembic_version") == [("0006",)]
    engine = make_engine(empty)
    with (
        engine.connect() as connection,
        pytest.raises(SchemaTakenError, match="alembic_version, artifact, attempt, job"),
    ):
        command.downgrade(alembic_config(connection, empty.database_schema), "0006")
    engine.dispose()
    assert names(plain, TABLES, "public") == before
    assert run(plain, "SELECT count(*) FROM thothy.job") == [(1,)]
    assert migrate(empty) == code_revision()  # later revisions were undone, one by one


def test_tables_like_ours_with_another_version_stay(empty: Settings, plain: Engine) -> None:
    install_old(empty)
    run(plain, "UPDATE public.alembic_version SET version_num = 'f00d'")
    migrate(empty)
    assert run(plain, "SELECT idempotency_key FROM public.job") == [("old",)]
    assert run(plain, "SELECT count(*) FROM thothy.job") == [(0,)]


def test_down_to_public_and_up_again(empty: Settings, plain: Engine) -> None:
    migrate(empty)
    with Producer(empty) as producer:
        job = producer.enqueue(Echo(text="ok"))
    engine = make_engine(empty)
    with engine.connect() as connection:
        command.downgrade(alembic_config(connection, empty.database_schema), "0005")
    engine.dispose()
    assert names(plain, TABLES, "thothy") == set()
    assert run(plain, "SELECT id, version_num FROM public.job, public.alembic_version") == [(job.id, "0005")]
    assert migrate(empty) == code_revision()
    assert run(plain, "SELECT id FROM thothy.job") == [(job.id,)]


def test_processes_of_earlier_versions_go_on_where_the_role_is_named_as_the_schema(
    empty: Settings, plain: Engine
) -> None:
    """Postgres looks in "$user" first. Their prepared statements and their foreign keys find the tables, too."""
    install_old(empty)
    with plain.connect() as old:
        assert old.scalar(text("SELECT current_user")) == empty.database_schema == "thothy"
        ask = text("SELECT count(*) FROM job JOIN queue_control ON name = 'default' WHERE idempotency_key = :key")
        for _ in range(7):  # the driver prepares it at the fifth time
            assert old.scalar(ask, {"key": "old"}) == 1
        old.execute(text("INSERT INTO job_request SELECT id, '{}' FROM job"))
        old.commit()
        migrate(empty)
        assert old.scalar(ask, {"key": "old"}) == 1
        old.execute(text(OLD_JOB), {"key": "after"})
        old.execute(text("INSERT INTO job_request SELECT id, '{}' FROM job WHERE idempotency_key = 'after'"))
        ids = [str(row.id) for row in old.execute(text("SELECT id FROM job"))]
        rows = old.execute(statement("queue/dispatch"), {"ids": ids, "engine": None}).all()
        old.commit()
    assert len(rows) == 2


def test_the_move_waits_for_a_reader_briefly_again_and_again(empty: Settings, plain: Engine) -> None:
    install_old(empty)
    thread = threading.Thread(target=migrate, args=(empty,))
    asks = "SELECT 1 FROM pg_stat_activity WHERE query LIKE 'LOCK TABLE%' AND wait_event_type = 'Lock'"
    with plain.connect() as reader:
        reader.execute(text("SELECT count(*) FROM public.usage_hourly"))
        thread.start()
        for _ in range(2):
            eventually(lambda: run(plain, asks))
            run(plain, f"SET LOCAL lock_timeout = '{PATIENCE}s'")
            run(plain, "UPDATE public.job SET priority = 2")
            eventually(lambda: not run(plain, asks))
        assert thread.is_alive()
    thread.join(PATIENCE)
    assert check_schema(empty) == code_revision()


def test_a_move_that_fails_half_way_leaves_everything_where_it_was(empty: Settings, plain: Engine) -> None:
    install_old(empty)
    before = names(plain, TABLES, "public")
    run(plain, "CREATE SCHEMA thothy")
    in_the_way = "thothy.thothy_uuid_floor(timestamptz)"
    run(plain, f"CREATE FUNCTION {in_the_way} RETURNS uuid LANGUAGE sql AS 'SELECT NULL::uuid'")
    with pytest.raises(DatabaseError, match="already exists"):
        migrate(empty)
    assert names(plain, TABLES, "public") == before
    run(plain, f"DROP FUNCTION {in_the_way}")
    assert migrate(empty) == code_revision()


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
