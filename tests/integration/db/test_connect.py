"""Errors of Postgres as the service's own: unreachable, schema too old, or a statement refused; with the SQLSTATE."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import Engine, text

from thothy_ai.db.connect import reaching
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


def test_too_many_parameters_do_not_make_postgres_unreachable(settings: Settings, engine: Engine) -> None:
    names = [f"p{number}" for number in range(65_536)]
    marks = ", ".join(f"CAST(:{name} AS int)" for name in names)
    refusal = _refusal(settings, engine, f"SELECT 1 WHERE 1 IN ({marks})", **dict.fromkeys(names, 1))
    assert (type(refusal), refusal.sqlstate) == (DatabaseError, None)
