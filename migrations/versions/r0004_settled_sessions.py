"""A claimed job names the engine session it was claimed for, and a session says when it was settled.

Thus an attempt whose worker vanished still names the engine that it used. Earlier rows name none, and earlier sessions
count as settled: the usage of their lost attempts can no longer be known.
"""

from __future__ import annotations

from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add two columns, which rewrites nothing."""
    op.execute("ALTER TABLE job ADD COLUMN IF NOT EXISTS engine_session_id uuid")
    op.execute("ALTER TABLE engine_session ADD COLUMN IF NOT EXISTS settled_at timestamptz")
    op.execute("UPDATE engine_session SET settled_at = ended_at WHERE ended_at IS NOT NULL")


def downgrade() -> None:
    """Drop them; recorded usage stays."""
    op.drop_column("engine_session", "settled_at")
    op.drop_column("job", "engine_session_id")
