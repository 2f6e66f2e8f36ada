"""Statements share fragments: each fragment is used, none is spelled out, and every statement is asked for by name."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

import pytest
from sqlalchemy import TextClause

import thothy_ai
from thothy_ai.db.fragments import FRAGMENTS, PLANNED_ORDER
from thothy_ai.db.models import JobRow
from thothy_ai.db.statements import FRAGMENT, source, statement

SQL = Path(str(files("thothy_ai.db"))) / "sql"
NAMES = sorted(str(path.relative_to(SQL).with_suffix("")) for path in SQL.rglob("*.sql"))
PYTHON = "\n".join(path.read_text(encoding="utf-8") for path in Path(thothy_ai.__file__).parent.rglob("*.py"))
MIN_LENGTH = 5  # a number may well stand in a statement by chance


def code(name: str) -> str:
    """The statement without comments, every run of blanks as one."""
    return " ".join(re.sub(r"--.*", "", source(name)).split())


def test_every_fragment_is_used() -> None:
    assert {name for statement in NAMES for name in FRAGMENT.findall(source(statement))} == set(FRAGMENTS)


@pytest.mark.parametrize("name", NAMES)
def test_no_statement_spells_a_fragment_out(name: str) -> None:
    spelled = [fragment for fragment, text in FRAGMENTS.items() if len(text) > MIN_LENGTH and text in code(name)]
    assert spelled == []
    assert not re.search(r"engine_deaths\W+[2-9]|thothy_queued|date_bin", code(name))


@pytest.mark.parametrize("name", NAMES)
def test_a_statement_is_complete_and_used(name: str) -> None:
    made = statement(name)
    assert isinstance(made, TextClause)
    assert not FRAGMENT.search(made.text)
    room, _, own = name.partition("/")
    assert f'"{name}"' in PYTHON or (room == "admin" and f'"{own}"' in PYTHON)


def test_every_statement_that_is_asked_for_is_there() -> None:
    rooms = {path.name for path in SQL.iterdir()} - {"http"}  # which is also the beginning of profiles' names
    asked = set(re.findall(rf'"((?:{"|".join(sorted(rooms))})/[a-z_]+)"', PYTHON))
    assert len(asked) > 50
    assert asked - set(NAMES) == set()


def test_an_unknown_statement_is_an_error() -> None:
    with pytest.raises(FileNotFoundError):
        statement("queue/no_such_statement")


def test_the_planned_order_has_an_index_of_the_same_terms() -> None:
    [index] = [index for index in JobRow.__table__.indexes if index.name == "ix_job_queued"]
    assert tuple(str(term).removeprefix("job.") for term in index.expressions) == PLANNED_ORDER
