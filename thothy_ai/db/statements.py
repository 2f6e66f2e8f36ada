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
    return text(FRAGMENT.sub(lambda found: FRAGMENTS[found[1]], source(name)))


def source(name: str) -> str:
    """The statement as it is written, fragments by name."""
    return files("thothy_ai.db").joinpath("sql", f"{name}.sql").read_text(encoding="utf-8")
