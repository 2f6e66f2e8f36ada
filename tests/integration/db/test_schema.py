"""The schema: up, down and up again; the migration and the models agree; the CHECKs reject; partitions."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from alembic import command
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.schema import CreateSchema

from thothy_ai.db.connect import make_engine
from thothy_ai.db.migration import alembic_config, migrate
from thothy_ai.db.models import Base
from thothy_ai.db.revisions import code_revision
from thothy_ai.db.schema import check_schema
from thothy_ai.errors import CodeBehindError, DatabaseUnreachableError, MigrationsBehindError
from thothy_ai.settings import Settings

ROOT = Path(__file__).parents[3]
FUNCTIONS = ROOT / "migrations" / "versions" / "r0001_planned_order.sql"  # which an index is over
OURS = r"^(job|attempt|artifact|brief|decision|drain|engine|model|usage|queue|forecast|batch|webhook)"
PARTITION = r"_(default|\d{4}_\d{2})(_|$)"

CATALOGUE = {
    "columns": f"""
        SELECT c.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull,
               pg_get_expr(d.adbin, d.adrelid)
        FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
        LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
        WHERE c.relkind IN ('r', 'p') AND a.attnum > 0 AND c.relname ~ '{OURS}' AND c.relname !~ '{PARTITION}'""",
    "constraints": f"""
        SELECT c.relname, n.conname, pg_get_constraintdef(n.oid)
        FROM pg_constraint n JOIN pg_class c ON c.oid = n.conrelid
        WHERE c.relname ~ '{OURS}' AND c.relname !~ '{PARTITION}'""",
    "indexes": f"SELECT tablename, indexname, indexdef FROM pg_indexes WHERE tablename ~ '{OURS}'"
    f" AND tablename !~ '{PARTITION}'",
    "storage": f"SELECT relname, reloptions, pg_get_partkeydef(oid) FROM pg_class WHERE relname ~ '{OURS}'"
    f" AND relkind IN ('r', 'p') AND relname !~ '{PARTITION}'",
}


def _catalogue(connection: Connection) -> dict[str, set[tuple[object, ...]]]:
    return {
        what: {tuple(str(value) for value in row) for row in connection.execute(text(query))}
        for what, query in CATALOGUE.items()
    }


@pytest.fixture
def empty(empty_database: str, clean_environment: None) -> Settings:
    return Settings.load(database_url=empty_database)


def _alembic(settings: Settings, action: Callable[..., object], *arguments: str) -> None:
    engine = make_engine(settings)
    with engine.connect() as connection:
        action(alembic_config(connection, settings.database_schema), *arguments)
    engine.dispose()


def test_migrations_are_named_after_their_numbers() -> None:
    script = ScriptDirectory.from_config(alembic_config())
    assert script.get_current_head() == code_revision()
    for revision in script.walk_revisions():
        assert Path(revision.path).name.startswith(f"r{revision.revision}_")


def test_migrates_up_down_and_up_again(empty: Settings) -> None:
    with pytest.raises(MigrationsBehindError, match="run `thothy migrate`"):
        check_schema(empty)
    first = migrate(empty)
    _alembic(empty, command.downgrade, "base")
    engine = make_engine(empty)
    with engine.connect() as connection:
        assert MigrationContext.configure(connection).get_current_revision() is None
        assert not any(_catalogue(connection).values())
    engine.dispose()
    assert migrate(empty) == first == check_schema(empty)


def test_migrating_twice_changes_nothing(settings: Settings) -> None:
    assert migrate(settings) == migrate(settings)


def test_the_models_need_no_further_migration(settings: Settings) -> None:
    _alembic(settings, command.check)


def test_alembic_s_own_command_finds_the_database_by_the_settings(settings: Settings) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "alembic", "-c", "migrations/alembic.ini", "check"],
        cwd=ROOT,
        env={**os.environ, **settings.environment()},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "No new upgrade operations" in done.stdout, done.stderr


def test_migration_and_models_make_the_same_tables(engine: Engine, empty: Settings) -> None:
    from_models = make_engine(empty)
    with from_models.begin() as connection:
        connection.execute(CreateSchema(empty.database_schema))
        connection.execute(text(FUNCTIONS.read_text(encoding="utf-8")))
    Base.metadata.create_all(from_models)
    with engine.connect() as migrated, from_models.connect() as created:
        assert _catalogue(migrated) == _catalogue(created)
    from_models.dispose()


def test_a_database_of_newer_code_is_told_apart(settings: Settings, engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    for action in (check_schema, migrate):
        with pytest.raises(CodeBehindError, match=r"is at revision 9999; .*: upgrade Thothy AI$"):
            action(settings)


def test_a_revision_that_nobody_knows_is_not_the_database_s_fault(settings: Settings) -> None:
    with pytest.raises(CommandError, match="banana"):
        migrate(settings, "banana")


def test_an_unreachable_database_is_named_without_its_password(clean_environment: None) -> None:
    settings = Settings.load(database_url="postgresql://me:hunter2@127.0.0.1:1/thothy")
    for action in (migrate, check_schema):
        with pytest.raises(DatabaseUnreachableError, match=r"127\.0\.0\.1:1") as caught:
            action(settings)
        assert "hunter2" not in str(caught.value)


JOB = {
    "id": "01890000-0000-7000-8000-000000000001",
    "tenant": "t",
    "kind": "hook",
    "source_key": "s",
    "request_digest": "d",
    "max_attempts": 3,
}
NOW = "2026-11-21T00:00:00Z"
LEASED = {"state": "running", "worker": "w", "lease_until": NOW, "started_at": NOW}


def _insert(connection: Connection, table: str, row: dict[str, object]) -> None:
    columns = ", ".join(row)
    values = ", ".join(f":{name}" for name in row)
    connection.execute(text(f"INSERT INTO {table} ({columns}) VALUES ({values})"), row)


@pytest.mark.parametrize(
    "more",
    [
        {},
        LEASED,
        {"state": "dispatched", "dispatched_at": NOW},
        {"state": "succeeded", "finished_at": NOW, "started_at": NOW},
        {"state": "dead", "finished_at": NOW, "reason": "empty"},
    ],
)
def test_lawful_jobs_are_taken(engine: Engine, more: dict[str, object]) -> None:
    with engine.begin() as connection:
        _insert(connection, "job", JOB | more)


@pytest.mark.parametrize(
    ("check", "more"),
    [
        ("state", {"state": "lost"}),
        ("priority", {"priority": 101}),
        ("priority", {"priority": -101}),
        ("max_attempts", {"max_attempts": 0}),
        ("counters", {"failures": -1}),
        ("dispatched", {"state": "dispatched"}),
        ("terminal", {"state": "succeeded"}),
        ("terminal", {"finished_at": NOW}),
        ("dead", {"state": "dead", "finished_at": NOW}),
        ("running", {"worker": "w"}),
        ("running", {"lease_until": NOW}),
        *(
            ("running", {key: value for key, value in LEASED.items() if key != left_out})
            for left_out in ("worker", "lease_until", "started_at")
        ),
    ],
)
def test_unlawful_jobs_are_refused(engine: Engine, check: str, more: dict[str, object]) -> None:
    with engine.connect() as connection, pytest.raises(IntegrityError, match=f"ck_job_{check}"):
        _insert(connection, "job", JOB | more)


ARTIFACT = {"job_id": JOB["id"], "kind": "hook", "locale": "en", "attempt": 1, "tenant": "t", "text": "{}"}


@pytest.mark.parametrize(
    ("check", "more"),
    [
        ("verdict", {"verdict": "maybe"}),
        ("accepted", {"verdict": "accepted"}),
        ("accepted", {"verdict": "accepted", "body": "{}", "reason": "empty"}),
        ("rejected", {"verdict": "rejected"}),
    ],
)
def test_unlawful_artifacts_are_refused(engine: Engine, check: str, more: dict[str, object]) -> None:
    with engine.connect() as connection, pytest.raises(IntegrityError, match=f"ck_artifact_{check}"):
        _insert(connection, "artifact", ARTIFACT | more)


def test_a_job_has_one_accepted_artifact_and_any_number_of_rejected(engine: Engine) -> None:
    with engine.connect() as connection:
        for attempt in (1, 2):
            rejected = {"verdict": "rejected", "reason": "empty", "attempt": attempt}
            _insert(connection, "artifact", ARTIFACT | rejected)
        accepted = ARTIFACT | {"verdict": "accepted", "body": "{}"}
        _insert(connection, "artifact", accepted | {"attempt": 3})
        with pytest.raises(IntegrityError, match="job_id, kind, locale"):
            _insert(connection, "artifact", accepted | {"attempt": 4})


def test_a_request_goes_with_its_job(engine: Engine) -> None:
    with engine.begin() as connection:
        _insert(connection, "job", JOB)
        _insert(connection, "job_request", {"job_id": JOB["id"], "request": "{}"})
        connection.execute(text("DELETE FROM job"))
        assert connection.scalar(text("SELECT count(*) FROM job_request")) == 0


def _event(connection: Connection, job_id: UUID) -> str:
    return connection.execute(
        text("INSERT INTO job_event (job_id, event) VALUES (:id, 'lost') RETURNING tableoid::regclass::text"),
        {"id": job_id},
    ).scalar_one()


def _floor(connection: Connection, months: int) -> UUID:
    found: UUID = connection.execute(
        text("SELECT thothy_uuid_floor(date_trunc('month', now()) + make_interval(months => :n))"), {"n": months}
    ).scalar_one()
    return found


def test_history_goes_to_the_month_of_the_job(engine: Engine) -> None:
    with engine.begin() as connection:
        this_month = connection.scalar(text("SELECT 'job_event_' || to_char(now(), 'YYYY_MM')"))
        assert _event(connection, _floor(connection, 0)) == this_month
        before = UUID(int=_floor(connection, 0).int - 1)
        last_month = connection.scalar(text("SELECT 'job_event_' || to_char(now() - interval '1 month', 'YYYY_MM')"))
        assert _event(connection, before) == last_month
        assert _event(connection, uuid4()) == "job_event_default"


def test_making_partitions_takes_rows_over_from_the_default(engine: Engine) -> None:
    with engine.begin() as connection:
        far = _floor(connection, 5)
        assert _event(connection, far) == "job_event_default"
        connection.execute(text("SELECT thothy_ensure_partitions(3)"))  # a month may have begun since the migration
        assert connection.scalar(text("SELECT thothy_ensure_partitions(5)")) == 2 * 3
        assert connection.scalar(text("SELECT thothy_ensure_partitions(5)")) == 0
        moved = connection.scalar(
            text("SELECT tableoid::regclass::text FROM job_event WHERE job_id = :id"), {"id": far}
        )
        wanted = text("SELECT 'job_event_' || to_char(now() + interval '5 months', 'YYYY_MM')")
        assert moved == connection.scalar(wanted)


def test_the_floor_of_a_uuidv7_is_its_time(engine: Engine) -> None:
    from uuid_utils.compat import uuid7

    made = uuid7()
    with engine.connect() as connection:
        low, high = connection.execute(
            text("SELECT thothy_uuid_floor(to_timestamp(:s)), thothy_uuid_floor(to_timestamp(:s + 0.001))"),
            {"s": (made.int >> 80) / 1000},
        ).one()
    assert low <= made < high


def test_heartbeats_leave_the_indexes_alone(engine: Engine) -> None:
    with engine.begin() as connection:
        _insert(connection, "job", JOB | LEASED)
    for _ in range(3):
        with engine.begin() as connection:
            connection.execute(text("UPDATE job SET lease_until = now() + interval '1 minute'"))
    with engine.connect() as connection:
        connection.execute(text("SELECT pg_stat_force_next_flush()"))
        connection.commit()
        updates = connection.execute(
            text("SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'job'")
        ).one()
    assert tuple(updates) == (3, 3)
