"""The planned order is that of virtual deadlines: priorities age, and deadlines are rounded by their slack.

The order is computed, not stored: rows of older code have their place in it, too. Older dispatchers keep working
without an index for their order, which takes longer on a full queue. Dispatched jobs are indexed by priority: whether a
job is urgent depends on the lowest. The age of a job for later counts from the time for which it was scheduled.
"""

from __future__ import annotations

from pathlib import Path

from alembic import op

from thothy_ai.db.online import beside_running_work, replace_index

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

DUE = "thothy_due(deadline, enqueued_at, scheduled_for)"
PLANNED = f"thothy_virtual_deadline(priority, deadline, enqueued_at, scheduled_for), {DUE}, source_key, id"
BEFORE = (
    "priority DESC, deadline NULLS LAST, date_bin('00:10:00', enqueued_at, '1970-01-01 00:00:00+00'), source_key, id"
)
QUEUED = "WHERE state = 'queued' AND NOT delayed"
DISPATCHED = "WHERE state = 'dispatched'"


def upgrade() -> None:
    """Add a column, which rewrites nothing, create the functions and replace the indexes concurrently."""
    op.execute("ALTER TABLE job ADD COLUMN IF NOT EXISTS scheduled_for timestamptz")
    op.execute(Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))
    with beside_running_work():
        replace_index("ix_job_queued", f"({PLANNED}) {QUEUED}")
        replace_index("ix_job_dispatched", f"(priority, dispatched_at DESC) {DISPATCHED}")


def downgrade() -> None:
    """Restore the indexes of the old order."""
    with beside_running_work():
        replace_index("ix_job_queued", f"({BEFORE}) {QUEUED}")
        replace_index("ix_job_dispatched", f"(dispatched_at) {DISPATCHED}")
    op.execute("DROP FUNCTION IF EXISTS thothy_virtual_deadline, thothy_due")
    op.execute("ALTER TABLE job DROP COLUMN IF EXISTS scheduled_for")
