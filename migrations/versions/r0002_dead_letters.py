"""An index of the dead: they are few among all that ended, and operators ask for them by the time of death."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Build the index beside running work; what an interrupted try left invalid is built anew."""
    with _beside_running_work():
        op.execute("DROP INDEX CONCURRENTLY IF EXISTS ix_job_dead")
        op.execute("CREATE INDEX CONCURRENTLY ix_job_dead ON job (finished_at, id) WHERE state = 'dead'")


def downgrade() -> None:
    """Drop it."""
    with _beside_running_work():
        op.execute("DROP INDEX CONCURRENTLY IF EXISTS ix_job_dead")


@contextmanager
def _beside_running_work() -> Iterator[None]:
    """Outside a transaction. Here a wait stands in nobody's way, and may last as long as the oldest transaction."""
    with op.get_context().autocommit_block():
        op.execute("SET lock_timeout = 0")
        yield
        op.execute("SET lock_timeout = '5s'")
