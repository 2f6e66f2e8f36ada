"""Jobs for later stand apart from those that may run: a dispatcher read over each of them, round after round.

Jobs that are queued already stay where they are: they are few, or soon due.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

PLANNED = (
    "priority DESC, deadline NULLS LAST, date_bin('00:10:00', enqueued_at, '1970-01-01 00:00:00+00'), source_key, id"
)


def upgrade() -> None:
    """Add the column, which rewrites nothing, and build the indexes beside running work."""
    op.execute("ALTER TABLE job ADD COLUMN IF NOT EXISTS delayed boolean NOT NULL DEFAULT false")
    with _beside_running_work():
        _index("ix_job_delayed", "(not_before) WHERE state = 'queued' AND delayed")
        _replace("ix_job_queued", f"({PLANNED}) WHERE state = 'queued' AND NOT delayed")


def downgrade() -> None:
    """Put the old index back; jobs for later are found by it again."""
    with _beside_running_work():
        op.execute("DROP INDEX CONCURRENTLY IF EXISTS ix_job_delayed")
        _replace("ix_job_queued", f"({PLANNED}) WHERE state = 'queued'")
    op.drop_column("job", "delayed")


def _index(name: str, definition: str) -> None:
    """Build it; what an interrupted try left invalid goes first."""
    op.execute(f"DROP INDEX CONCURRENTLY IF EXISTS {name}")
    op.execute(f"CREATE INDEX CONCURRENTLY {name} ON job {definition}")


def _replace(name: str, definition: str) -> None:
    """At no moment is there neither the old index nor the new one."""
    _index(f"{name}_new", definition)
    op.execute(f"DROP INDEX CONCURRENTLY IF EXISTS {name}")
    op.execute(f"ALTER INDEX {name}_new RENAME TO {name}")


@contextmanager
def _beside_running_work() -> Iterator[None]:
    """Outside a transaction. Here a wait stands in nobody's way, and may last as long as the oldest transaction."""
    with op.get_context().autocommit_block():
        op.execute("SET lock_timeout = 0")
        yield
        op.execute("SET lock_timeout = '5s'")
