"""Delayed jobs leave the dispatcher's index: it would read over each of them in every round.

Jobs that are queued already stay in it: they are few, or soon due.
"""

from __future__ import annotations

from alembic import op

from thothy_ai.db.online import beside_running_work, build_index, drop_index, replace_index

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

PLANNED = (
    "priority DESC, deadline NULLS LAST, date_bin('00:10:00', enqueued_at, '1970-01-01 00:00:00+00'), source_key, id"
)


def upgrade() -> None:
    """Add the column, which rewrites nothing, and build the indexes concurrently."""
    op.execute("ALTER TABLE job ADD COLUMN IF NOT EXISTS delayed boolean NOT NULL DEFAULT false")
    with beside_running_work():
        build_index("ix_job_delayed", "(not_before) WHERE state = 'queued' AND delayed")
        replace_index("ix_job_queued", f"({PLANNED}) WHERE state = 'queued' AND NOT delayed")


def downgrade() -> None:
    """Restore the old index, which includes delayed jobs."""
    with beside_running_work():
        drop_index("ix_job_delayed")
        replace_index("ix_job_queued", f"({PLANNED}) WHERE state = 'queued'")
    op.execute("ALTER TABLE job DROP COLUMN IF EXISTS delayed")
