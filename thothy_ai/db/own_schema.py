"""Moves an installation from `public`, where it was before revision 0007, into a schema of its own, and back.

An application may have an `alembic_version`, a `job` and so on in `public`: what stands there is ours only if the
version is one of ours, and our functions and tables are there with our columns. Nothing else is touched.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from alembic import op
from sqlalchemy import Connection, text

from thothy_ai.db import online
from thothy_ai.errors import SchemaTakenError

SHARED = "public"
VERSION_TABLE = "alembic_version"
REVISIONS = ("0001", "0002", "0003", "0004", "0005", "0006")  # that were in `public`
COLUMNS = {  # of the first revision: enough to know our tables by
    VERSION_TABLE: ("version_num",),
    "job": ("id", "tenant", "kind", "state", "source_key", "idempotency_key", "request_digest", "dispatch_no"),
    "job_request": ("job_id", "request"),
    "attempt": ("job_id", "attempt", "tenant", "worker", "engine_session_id", "outcome", "compute_seconds"),
    "artifact": ("job_id", "kind", "locale", "attempt", "tenant", "verdict", "body", "text"),
    "job_event": ("job_id", "at", "event", "detail"),
    "engine_session": ("id", "model", "device", "num_blocks", "block_size", "heartbeat_at", "busy_seconds"),
    "usage_hourly": ("hour", "tenant", "kind", "succeeded", "accepted", "compute_seconds"),
    "queue_control": ("name", "paused", "changed_at", "note"),
}
FUNCTIONS = ("thothy_uuid_floor", "thothy_ensure_partitions", "thothy_due", "thothy_virtual_deadline")
FIRST_FUNCTIONS = FUNCTIONS[:2]

HAS_VERSION_TABLE = text("SELECT to_regclass(CAST(:name AS text)) IS NOT NULL")
HAS_COLUMNS = text(
    """
    SELECT bool_and(EXISTS (
        SELECT FROM pg_attribute
        WHERE attrelid = to_regclass(format('%I.%I', CAST(:schema AS text), wanted.name)) AND attname = wanted.attname
            AND attnum > 0 AND NOT attisdropped AND has_table_privilege(attrelid, 'SELECT')
    ))
    FROM unnest(CAST(:tables AS text[]), CAST(:columns AS text[])) AS wanted (name, attname)
    """
)
FUNCTIONS_IN = text(
    """
    SELECT DISTINCT proname FROM pg_proc
    WHERE pronamespace = to_regnamespace(:schema) AND proname = ANY (CAST(:names AS text[]))
    """
)
# Our tables, their partitions wherever they are, and the version table, as far as they are not in the schema yet.
ELSEWHERE = text(
    """
    SELECT format('%I.%I', nspname, relname) AS qualified, relname
    FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
    WHERE nspname <> :schema AND pg_class.oid IN (
        SELECT CAST(name AS regclass) FROM unnest(CAST(:tables AS text[])) AS name
        UNION ALL
        SELECT inhrelid FROM pg_inherits JOIN unnest(CAST(:tables AS text[])) AS name
            ON inhparent = CAST(name AS regclass)
    )
    ORDER BY relname = 'job' DESC, relname  -- most statements lock `job` first
    """
)
TAKEN = text("SELECT relname FROM pg_class WHERE relnamespace = to_regnamespace(:schema) AND relname = ANY (:names)")


def has_version_table(connection: Connection, schema: str) -> bool:
    """Whether there is an installation in the schema, or another Alembic version table."""
    return bool(connection.scalar(HAS_VERSION_TABLE, {"name": f"{schema}.{VERSION_TABLE}"}))


def is_ours(connection: Connection, schema: str) -> bool:
    """Whether this schema holds an installation from before revision 0007."""
    pairs = [(table, column) for table, columns in COLUMNS.items() for column in columns]
    wanted = {"schema": schema, "tables": [pair[0] for pair in pairs], "columns": [pair[1] for pair in pairs]}
    functions = connection.scalars(FUNCTIONS_IN, {"schema": schema, "names": list(FIRST_FUNCTIONS)}).all()
    if len(functions) < len(FIRST_FUNCTIONS) or not connection.scalar(HAS_COLUMNS, wanted):
        return False
    select = text(f"SELECT CAST(version_num AS text) FROM {schema}.{VERSION_TABLE}")  # noqa: S608 - a checked name
    versions = connection.scalars(select).all()
    return len(versions) == 1 and versions[0] in REVISIONS


def move(source: str, target: str) -> None:
    """Move everything from one schema to the other, in the migration's transaction. Only the catalogue is written.

    Waits for locks as briefly as one statement may. Raises `SchemaTakenError` if the names are taken in the target.
    """
    bind = op.get_bind()
    wanted = {"schema": target, "tables": [f"{source}.{table}" for table in COLUMNS]}
    tables = bind.execute(ELSEWHERE, wanted).all()
    taken = bind.scalars(TAKEN, {"schema": target, "names": [table.relname for table in tables]}).all()
    if taken:
        raise SchemaTakenError(f"schema {target} has tables of the same names: {', '.join(sorted(taken))}")
    _lock([table.qualified for table in tables])
    for table in tables:
        op.execute(f"ALTER TABLE {table.qualified} SET SCHEMA {target}")
    for function in bind.scalars(FUNCTIONS_IN, {"schema": source, "names": list(FUNCTIONS)}).all():
        op.execute(f"ALTER FUNCTION {source}.{function} SET SCHEMA {target}")


def _lock(tables: Sequence[str]) -> None:
    """Lock all of them within the time that others may have to wait."""
    until = time.monotonic() + online.LOCK_SECONDS
    for table in tables:
        left = max(1, int(1000 * (until - time.monotonic())))
        op.execute(f"SET lock_timeout = {left}")
        op.execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")
    op.execute(online.LIMIT_LOCKS)
