"""How Alembic reaches the database: a connection given by `thothy_ai.db.schema`, or one made from the settings."""

from __future__ import annotations

import re

from alembic import context
from sqlalchemy import Connection, text

from thothy_ai.db.connect import make_engine
from thothy_ai.db.models import Job
from thothy_ai.settings import Settings

PARTITION = re.compile(r"(attempt|artifact|job_event)_(default|\d{4}_\d{2})")
ONE_AT_A_TIME = text("SELECT pg_advisory_xact_lock(hashtext('thothy_migrate'))")


def _ours(name: str | None, kind: str, _parents: object) -> bool:
    """Partitions come and go by themselves; the models know only their parents."""
    return not (kind == "table" and name and PARTITION.fullmatch(name))


def _run(connection: Connection) -> None:
    context.configure(connection, target_metadata=Job.metadata, include_name=_ours, compare_server_default=True)
    with context.begin_transaction():
        connection.execute(ONE_AT_A_TIME)
        # A migration that cannot get its lock gives up, rather than making every worker queue behind it.
        connection.execute(text("SET LOCAL lock_timeout = '5s'"))
        context.run_migrations()


if given := context.config.attributes.get("connection"):
    _run(given)
else:
    with make_engine(Settings.load(), application="migrate").begin() as opened:
        _run(opened)
