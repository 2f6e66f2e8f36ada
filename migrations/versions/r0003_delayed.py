"""Jobs for later stand apart from those that may run: a dispatcher read over each of them, round after round.

Jobs that are queued already stay where they are: they are few, or soon due.
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
    """Add the column, which rewrites nothing, and build the indexes beside running work."""
    op.execute("ALTER TABLE job ADD COLUMN IF NOT EXISTS delayed boolean NOT NULL DEFAULT false")
    with beside_running_work():
        build_index("ix_job_delayed", "(not_before) WHERE state = 'queued' AND delayed")
        replace_index("ix_job_queued", f"({PLANNED}) WHERE state = 'queued' AND NOT delayed")


def downgrade() -> None:
    """Put the old index back; jobs for later are found by it again."""
    with beside_running_work():
        drop_index("ix_job_delayed")
        replace_index("ix_job_queued", f"({PLANNED}) WHERE state = 'queued'")
    op.execute("ALTER TABLE job DROP COLUMN IF EXISTS delayed")
