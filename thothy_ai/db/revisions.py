"""The packaged migrations, and the revision that this code was written for. Connects to nothing."""

from __future__ import annotations

from pathlib import Path

MIGRATIONS = Path(__file__).parents[1] / "migrations"


def code_revision() -> str:
    """The newest revision: a migration's file is named after its number, such as `r0001_baseline.py`.

    Every process checks it at its start, and importing Alembic takes longer than all the rest of that check.
    """
    return max(path.name[1:5] for path in MIGRATIONS.glob("versions/r*.py"))
