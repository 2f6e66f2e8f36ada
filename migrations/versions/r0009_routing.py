"""Due jobs are indexed by the model that they name, dispatched ones by engine, and engine sessions by heartbeat.

Jobs that name no model keep the index of the planned order, those that do have one of their own: a dispatcher reads
what is next for each model, whatever waits for another. Older dispatchers keep working without an index for their
order, which takes longer on a full queue.
"""

from __future__ import annotations

from alembic import op

from thothy_ai.db.online import beside_running_work, build_index, drop_index, replace_index

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

PLANNED = (
    "thothy_virtual_deadline(priority, deadline, enqueued_at, scheduled_for),"
    " thothy_due(deadline, enqueued_at, scheduled_for), source_key, id"
)
QUEUED = "WHERE state = 'queued' AND NOT delayed"
DISPATCHED = "WHERE state = 'dispatched'"


def upgrade() -> None:
    """Build the indexes concurrently; that of the few engine sessions is built at once."""
    with beside_running_work():
        build_index("ix_job_queued_model", f"(model, {PLANNED}) {QUEUED} AND model IS NOT NULL")
        replace_index("ix_job_queued", f"({PLANNED}) {QUEUED} AND model IS NULL")
        replace_index("ix_job_dispatched", f"(engine_name, priority, dispatched_at DESC) {DISPATCHED}")
    op.execute("CREATE INDEX IF NOT EXISTS ix_engine_session_heartbeat_at ON engine_session (heartbeat_at)")


def downgrade() -> None:
    """Restore the indexes without models and engines."""
    op.execute("DROP INDEX IF EXISTS ix_engine_session_heartbeat_at")
    with beside_running_work():
        replace_index("ix_job_queued", f"({PLANNED}) {QUEUED}")
        replace_index("ix_job_dispatched", f"(priority, dispatched_at DESC) {DISPATCHED}")
        drop_index("ix_job_queued_model")
