"""Runs migrations during live traffic: waits for locks are brief, and indexes are built concurrently.

A statement that waits for a table's lock blocks every later statement on that table. It therefore gives up soon, and
`migrations/env.py` runs the migration again: each can be repeated from its start.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from alembic import op
from sqlalchemy import text

from thothy_ai.crash_points import crash_point

LOCK_SECONDS = 0.3  # how long others may have to wait behind a migration
PAUSE_SECONDS = 0.7  # for the statements that waited, before the next try
PATIENCE_SECONDS = 30.0  # then the migration ends

LIMIT_LOCKS = f"SET lock_timeout = {LOCK_SECONDS * 1000:.0f}"
PARTITIONS_WITHOUT = text(
    """
    SELECT partition.inhrelid::regclass::text
    FROM pg_inherits AS partition
    WHERE partition.inhparent = to_regclass(:table) AND NOT EXISTS (
        SELECT FROM pg_index JOIN pg_inherits AS attached ON attached.inhrelid = indexrelid
        WHERE indrelid = partition.inhrelid AND attached.inhparent = to_regclass(:index)
    )
    ORDER BY 1
    """
)
IS_VALID = text("SELECT bool_or(indisvalid) FROM pg_index WHERE indexrelid = to_regclass(:name)")


@contextmanager
def beside_running_work() -> Iterator[None]:
    """Run outside a transaction. Waiting blocks nothing here, and can last as long as the oldest transaction."""
    with op.get_context().autocommit_block():
        op.execute("SET lock_timeout = 0")
        yield
        op.execute(LIMIT_LOCKS)


def build_index(name: str, definition: str, table: str = "job") -> None:
    """Build an index concurrently; drops the invalid one that an interrupted try left."""
    if op.get_bind().scalar(IS_VALID, {"name": name}):
        return
    drop_index(name)
    op.execute(f"CREATE INDEX CONCURRENTLY {name} ON {table} {definition}")


def build_partitioned_index(name: str, table: str, definition: str) -> None:
    """Index a partitioned table: its own index first, which is invalid until each partition has one.

    Partitions attached meanwhile get their index on attachment. Safe to repeat.
    """
    op.execute(LIMIT_LOCKS)  # this and attaching wait for locks that writers need
    op.execute(f"CREATE INDEX IF NOT EXISTS {name} ON ONLY {table} {definition}")
    bind = op.get_bind()
    for (partition,) in bind.execute(PARTITIONS_WITHOUT, {"table": table, "index": name}).all():
        own = f"{partition}_{name}"
        if not bind.scalar(IS_VALID, {"name": own}):
            drop_index(own)
            op.execute("SET lock_timeout = 0")
            op.execute(f"CREATE INDEX CONCURRENTLY {own} ON {partition} {definition}")
            op.execute(LIMIT_LOCKS)
        op.execute(f"ALTER INDEX {name} ATTACH PARTITION {own}")


def drop_index(name: str) -> None:
    """Drop an index concurrently, if it exists."""
    op.execute(f"DROP INDEX CONCURRENTLY IF EXISTS {name}")


def replace_index(name: str, definition: str) -> None:
    """Replace an index by one with another definition; one of the two can be used at all times.

    If it is interrupted between the last two steps, the new index exists under its temporary name, and is kept.
    """
    build_index(f"{name}_new", definition)
    drop_index(name)
    crash_point("mid_replace")
    op.execute(f"ALTER INDEX {name}_new RENAME TO {name}")
