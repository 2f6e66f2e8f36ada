"""A claimed job says which engine it was claimed for, and a session when its books were closed.

So an attempt whose worker vanished still names the engine that it cost seconds on. Rows of before name none, and old
sessions count as closed: nobody can tell any more what their lost attempts cost.
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
    """Drop them; what is booked stays booked."""
    op.drop_column("engine_session", "settled_at")
    op.drop_column("job", "engine_session_id")
