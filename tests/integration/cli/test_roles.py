"""`thothy roles`: a tenant's role, from its creation to its end."""

from __future__ import annotations

import json
import shlex
from uuid import uuid4

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.exc import ProgrammingError

from tests.support.command_line import SOURCE, Run, one_line
from thothy_ai.errors import PermissionDeniedError
from thothy_ai.jobs import Hook
from thothy_ai.producer import Producer
from thothy_ai.settings import Settings


def test_create_use_list_and_drop(run: Run, settings: Settings) -> None:
    name = f"acme_{uuid4().hex[:8]}"
    assert run("roles", "list").stdout == "No roles.\n"
    said = run("roles", "create", name, "--tenant", "acme").stdout.splitlines()
    assert said[0] == "THOTHY_TENANT=acme"
    url = shlex.split(said[1])[0].removeprefix("THOTHY_DATABASE_URL=")
    given = Settings.load(home=settings.home, database_url=url)
    with Producer(given.model_copy(update={"tenant": "acme"})) as producer:
        producer.enqueue(Hook(source=SOURCE))
    with Producer(given) as producer, pytest.raises(PermissionDeniedError):
        producer.enqueue(Hook(source=SOURCE))
    assert json.loads(run("roles", "list", "--json").stdout) == [{"role": name, "tenant": "acme", "login": True}]
    assert name in run("roles", "list").stdout
    again = one_line(run("roles", "create", name, "--tenant", "acme", exit_code=1))
    assert again.startswith(f"role {name} exists already, for tenant acme; its password is not stored: for a new one, ")
    assert f"`thothy roles drop {name}`" in again
    assert run("roles", "drop", name, "--yes").stdout == f"Role {name} dropped.\n"
    assert f"no tenant's role is called {name}" in one_line(run("roles", "drop", name, "--yes", exit_code=1))


def test_a_role_to_be_granted_has_no_password(run: Run) -> None:
    name = f"acme_{uuid4().hex[:8]}"
    made = json.loads(run("roles", "create", name, "--tenant", "acme", "--no-login", "--json").stdout)
    assert made == {"role": name, "tenant": "acme", "password": None, "database_url": None}
    run("roles", "drop", name, "--yes")


def test_names_that_cannot_be_one(run: Run) -> None:
    assert "lower-case letters" in one_line(run("roles", "create", "Bad Name", "--tenant", "acme", exit_code=2))
    assert "the tenant is empty" in one_line(run("roles", "create", "acme", "--tenant", "", exit_code=2))
    for tenant in ("../../evil", "<b>", "=1+1", "a\nb", "x" * 101, " acme"):
        assert "must be 1 to 100 letters" in one_line(run("roles", "create", "acme", "--tenant", tenant, exit_code=2))
    assert "no tenant's role is called postgres" in one_line(run("roles", "drop", "postgres", "--yes", exit_code=1))


def test_a_role_that_is_not_ours_is_left_alone(run: Run, engine: Engine) -> None:
    with engine.connect() as connection:
        name = str(connection.scalar(text("SELECT current_user")))
    said = one_line(run("roles", "create", name, "--tenant", "acme", exit_code=1))
    assert said == f"Postgres already has a role {name} that does not belong to a tenant: choose another name"


def test_a_role_makes_neither_temporary_tables_nor_large_objects(run: Run, engine: Engine) -> None:
    name = f"acme_{uuid4().hex[:8]}"
    assert "disk" not in run("roles", "create", name, "--tenant", "acme", "--no-login").stderr
    for statement in (
        "CREATE TEMPORARY TABLE mine (x int)",
        "SELECT lo_create(0)",
        "SELECT lo_creat(-1)",
        "SELECT lo_from_bytea(0, 'x')",
    ):
        with engine.connect() as connection:
            connection.execute(text(f"SET LOCAL ROLE {name}"))
            with pytest.raises(ProgrammingError, match="permission denied"):
                connection.execute(text(statement))
    with engine.connect() as connection:  # the owner still may
        connection.execute(text("CREATE TEMPORARY TABLE mine (x int)"))
    run("roles", "drop", name, "--yes")
