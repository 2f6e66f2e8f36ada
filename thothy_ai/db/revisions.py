"""The packaged migrations, and the revision that this code was written for. Connects to nothing."""

from __future__ import annotations

from pathlib import Path

from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Connection

MIGRATIONS = Path(__file__).parents[1] / "migrations"


def alembic_config(connection: Connection | None = None, schema: str = "") -> Config:
    """Alembic's configuration, from the packaged migrations; for this connection and schema, or those of settings."""
    config = Config(MIGRATIONS / "alembic.ini")
    if connection is not None:
        config.attributes.update(connection=connection, schema=schema)
    return config


def known_revisions() -> set[str]:
    return {script.revision for script in ScriptDirectory.from_config(alembic_config()).walk_revisions()}


def code_revision() -> str:
    return ScriptDirectory.from_config(alembic_config()).get_current_head() or ""
