"""The hot statements by name: each is one file in `db/sql/`, with `:name` parameters."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from sqlalchemy import TextClause, text


@cache
def statement(name: str) -> TextClause:
    """The statement in `db/sql/<name>.sql`. Raises `FileNotFoundError` when there is none."""
    return text((files("thothy_ai.db") / "sql" / f"{name}.sql").read_text(encoding="utf-8"))
