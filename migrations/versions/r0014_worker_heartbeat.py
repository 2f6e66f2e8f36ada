"""An engine session says when a worker last reached its engine: jobs are sent only to engines with a worker.

Earlier workers do not write it: an engine where it is NULL gets one job at a time until it runs one.
"""

from __future__ import annotations

from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add a column, which rewrites nothing."""
    op.execute("ALTER TABLE engine_session ADD COLUMN IF NOT EXISTS worker_heartbeat_at timestamptz")


def downgrade() -> None:
    """Drop it."""
    op.drop_column("engine_session", "worker_heartbeat_at")
