"""An index of dead jobs: they are few among all that ended, and operators query them by time of death."""

from __future__ import annotations

from thothy_ai.db.online import beside_running_work, build_index, drop_index

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Build the index concurrently; an invalid one that an interrupted try left is rebuilt."""
    with beside_running_work():
        build_index("ix_job_dead", "(finished_at, id) WHERE state = 'dead'")


def downgrade() -> None:
    """Drop it."""
    with beside_running_work():
        drop_index("ix_job_dead")
