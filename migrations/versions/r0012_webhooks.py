"""Batches, and the webhooks that they asked for.

A delivery is written by a trigger, in the transaction that ends the job: whichever statement ends it, of whichever
version. The trigger fires only for statements that set `finished_at`, and calls its function only for jobs of a batch.
"""

from __future__ import annotations

from pathlib import Path

from alembic import op

from thothy_ai.db.online import beside_running_work, build_index, drop_index

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

INDEX = "(batch_id, finished_at) WHERE batch_id IS NOT NULL"


def upgrade() -> None:
    """Add a column, which rewrites nothing, two tables and the trigger; index the jobs of batches concurrently."""
    op.execute("ALTER TABLE job ADD COLUMN IF NOT EXISTS batch_id uuid")
    op.execute(Path(__file__).with_suffix(".sql").read_text(encoding="utf-8").replace(":schema", _schema()))
    with beside_running_work():
        build_index("ix_job_batch", INDEX)


def downgrade() -> None:
    """Drop them: deliveries that have not succeeded are lost."""
    with beside_running_work():
        drop_index("ix_job_batch")
    op.execute("DROP TRIGGER IF EXISTS tell_end ON job")
    op.execute("DROP FUNCTION IF EXISTS thothy_tell_end")
    op.execute("DROP TABLE IF EXISTS webhook_delivery, batch")
    op.execute("ALTER TABLE job DROP COLUMN IF EXISTS batch_id")


def _schema() -> str:
    """The schema: the first that the connection searches."""
    return str(op.get_bind().exec_driver_sql("SELECT (current_schemas(false))[1]").scalar_one())
