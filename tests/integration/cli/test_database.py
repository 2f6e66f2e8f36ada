"""`thothy migrate`, and every command on a database that is missing, old or broken."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from uuid import uuid4

import pytest
from sqlalchemy import Engine, make_url, text

from tests.support.command_line import (
    SOURCE,
    Run,
    one_line,
)
from tests.support.patience import PATIENCE
from thothy_ai.errors import MigrationsBehindError
from thothy_ai.jobs import TrendSummary
from thothy_ai.producer import Producer
from thothy_ai.settings import Settings


def test_migrate_twice(run: Run, empty_database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THOTHY_DATABASE_URL", empty_database)
    for command in (["jobs", "list"], ["report"], ["queue", "status"]):
        assert "run `thothy migrate`" in one_line(run(*command, exit_code=1))
    assert "is at revision" in run("migrate").stdout
    assert "is at revision" in run("migrate").stdout
    assert run("jobs", "list").stdout == "No jobs.\n"


def test_a_schema_without_an_installation_names_those_with_one(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THOTHY_DATABASE_SCHEMA", "thotyh")
    problem = "schema thotyh (THOTHY_DATABASE_SCHEMA) has no tables of Thothy; thothy has them"
    said = f"{problem}: correct the setting, or for another installation run `thothy migrate`"
    assert one_line(run("jobs", "list", exit_code=1)) == said
    (found,) = json.loads(run("doctor", "--only", "schema", "--json", exit_code=1).stdout)
    assert (found["says"], found["fix"]) == (problem, said.partition(": ")[2])
    enqueued = one_line(run("enqueue", "hook", "--source", SOURCE, exit_code=1))
    assert enqueued.startswith("schema thotyh (THOTHY_DATABASE_SCHEMA) lacks tables or columns")


def test_missing_rights_are_named_with_what_to_do(
    run: Run, engine: Engine, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"reader_{uuid4().hex[:8]}"
    with engine.begin() as connection:
        connection.execute(text(f"CREATE ROLE {name} LOGIN PASSWORD 'sesame'"))
        connection.execute(text(f"GRANT USAGE ON SCHEMA thothy TO {name}"))
        connection.execute(text(f"GRANT SELECT ON alembic_version TO {name}"))
    url = make_url(settings.require_database_url()).set(username=name, password="sesame")
    monkeypatch.setenv("THOTHY_DATABASE_URL", url.render_as_string(hide_password=False))
    assert "run the service as the owner of the tables" in one_line(run("jobs", "list", exit_code=1))
    denied = one_line(run("roles", "create", f"{name}_x", "--tenant", "acme", exit_code=1))
    assert "run the command as a role with CREATEROLE" in denied
    monkeypatch.setenv("THOTHY_DATABASE_SCHEMA", "elsewhere")
    assert "GRANT CREATE ON DATABASE" in one_line(run("migrate", exit_code=1))
    with engine.begin() as connection:
        connection.execute(text(f"DROP OWNED BY {name}"))
        connection.execute(text(f"DROP ROLE {name}"))


@pytest.mark.parametrize("command", [["jobs", "list"], ["enqueue", "hook", "--source", SOURCE], ["migrate"], ["drain"]])
def test_an_unreachable_postgres_is_named(run: Run, monkeypatch: pytest.MonkeyPatch, command: list[str]) -> None:
    monkeypatch.setenv("THOTHY_DATABASE_URL", "postgresql+psycopg://u:sesame@127.0.0.1:9/db")
    message = one_line(run(*command, exit_code=1))
    assert message.startswith("Postgres cannot be reached at 127.0.0.1:9")
    assert "sesame" not in message


def test_a_failing_statement_is_reported_in_one_line(run: Run, engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(text("ALTER TABLE artifact RENAME TO damaged"))
        connection.execute(text("CREATE VIEW artifact AS SELECT *, 1 / 0 AS broken FROM damaged WHERE 1 / 0 = 1"))
    assert "refused a statement" in one_line(run("artifacts", "list", exit_code=1))


def test_as_a_program(settings: Settings) -> None:
    environment = {
        **os.environ,
        "THOTHY_DATABASE_URL": settings.require_database_url(),
        "THOTHY_HOME": str(settings.home),
    }
    command = [sys.executable, "-m", "thothy_ai.cli"]
    done = subprocess.run([*command, "queue", "status"], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "The queue is empty.\n", "")
    broken = {**environment, "THOTHY_DATABASE_URL": "mysql://x:sesame@y/z"}
    done = subprocess.run([*command, "jobs", "list"], env=broken, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("thothy: THOTHY_DATABASE_URL: must look like postgresql+psycopg://")
    assert "sesame" not in done.stderr


class TestOldSchema:
    """On a database that was not migrated, every entry point reports that in one line."""

    @pytest.fixture(autouse=True)
    def _unmigrated(self, run: Run, empty_database: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("THOTHY_DATABASE_URL", empty_database)
        monkeypatch.setenv("THOTHY_ENGINE_URL", "unix:///nowhere/engine.sock")

    @pytest.mark.parametrize("service", ["worker", "dispatcher", "reaper"])
    def test_a_service_does_not_start(self, service: str) -> None:
        command = [sys.executable, "-m", "thothy_ai.cli", service]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)
        assert done.returncode == 1
        assert "Traceback" not in done.stderr
        assert "run `thothy migrate`" in done.stderr.splitlines()[-1]

    def test_enqueue_says_what_to_do(self, run: Run) -> None:
        done = run("enqueue", "trend_summary", "--source", SOURCE, exit_code=1)
        assert "run `thothy migrate`" in one_line(done)

    def test_a_producer_raises_it(self) -> None:
        with Producer.from_env() as producer, pytest.raises(MigrationsBehindError):
            producer.enqueue(TrendSummary(source=SOURCE))
