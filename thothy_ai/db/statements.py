"""Every statement by name: one file each in `db/sql/<package>/`, with `:name` parameters and `{name}` fragments."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

from sqlalchemy import TextClause, text

from thothy_ai.db.fragments import FRAGMENTS

FRAGMENT = re.compile(r"\{([a-z_]+)\}")  # `{4}` in a regular expression is not one


@cache
def statement(name: str) -> TextClause:
    """The statement in `db/sql/<name>.sql`. Raises `FileNotFoundError`, or `KeyError` for an unknown fragment."""
    return text(expanded(name))


@cache
def qualified(name: str, schema: str) -> TextClause:
    """The same statement with its tables named by their schema: for connections that have a search path of their own.

    Raises as `statement`, and `ValueError` for a statement with functions of the schema, which would stay unqualified.
    """
    bare = expanded(name)
    if "thothy_" in bare:
        raise ValueError(f"{name} calls a function of the schema")
    return text(_table_after_keyword().sub(rf"\1 {schema}.\2", bare).replace("current_schema()", f"'{schema}'"))


@cache
def _table_after_keyword() -> re.Pattern[str]:
    from thothy_ai.db.models import Base  # noqa: PLC0415 - slow to import, and needed behind poolers only

    return re.compile(r"\b(FROM|JOIN|INTO|UPDATE|USING)\s+({})\b".format("|".join(Base.metadata.tables)))


def expanded(name: str) -> str:
    """The statement's text, fragments included. Raises as `statement`."""
    return FRAGMENT.sub(lambda found: FRAGMENTS[found[1]], source(name))


def source(name: str) -> str:
    """The statement as it is written, fragments by name."""
    return files("thothy_ai.db").joinpath("sql", f"{name}.sql").read_text(encoding="utf-8")
