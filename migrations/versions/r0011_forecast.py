"""Forecasts of the time to empty are kept, and compared with what came; what they are made from is kept beside them.

`forecast` has about one row per minute in which the queue was not empty. `forecast_state` has one row: what was learnt
of costs and rates, and the latest forecast. Dispatchers of older code write neither.
"""

from __future__ import annotations

from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create two tables."""
    op.execute(
        "CREATE TABLE IF NOT EXISTS forecast (made_at timestamptz NOT NULL CONSTRAINT pk_forecast PRIMARY KEY,"
        " began_at timestamptz NOT NULL, open_jobs bigint NOT NULL, p50_seconds double precision NOT NULL,"
        " p90_seconds double precision NOT NULL, late_jobs bigint NOT NULL, arrived bigint NOT NULL DEFAULT 0,"
        " disturbed boolean NOT NULL DEFAULT false, ended_at timestamptz)"
    )
    op.execute("CREATE INDEX IF NOT EXISTS ix_forecast_open ON forecast (made_at) WHERE ended_at IS NULL")
    op.execute(
        "CREATE TABLE IF NOT EXISTS forecast_state (name text NOT NULL CONSTRAINT pk_forecast_state PRIMARY KEY,"
        " learnt jsonb NOT NULL, latest jsonb NOT NULL, changed_at timestamptz NOT NULL DEFAULT now())"
    )


def downgrade() -> None:
    """Drop them; what was learnt is learnt again."""
    op.execute("DROP TABLE IF EXISTS forecast_state")
    op.execute("DROP TABLE IF EXISTS forecast")
