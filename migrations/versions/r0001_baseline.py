"""The baseline: every table, index and function of the first release."""

from __future__ import annotations

from pathlib import Path

from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

FILES = ("r0001_planned_order.sql", "r0001_tables.sql", "r0001_functions.sql")  # indexes need the planned order first
TABLES = (
    "review_draft", "measured_verifier", "audit_log", "console_session", "console_link", "console_secret",
    "api_batch", "stored_file", "webhook_delivery", "batch", "forecast_state", "forecast", "drain", "usage_progress",
    "interactive_usage", "usage_by_hour", "queue_pause", "queue_control", "api_key", "model_alias", "engine_session",
    "brief", "artifact_version", "decision", "job_event", "artifact", "attempt", "job_request", "source_text", "job",
)  # fmt: skip
FUNCTIONS = (
    "thothy_notify_decision", "thothy_notify_end", "thothy_is_own_text", "thothy_is_own_job", "thothy_drop_month",
    "thothy_ensure_partitions", "thothy_uuid_floor", "thothy_virtual_deadline", "thothy_due",
)  # fmt: skip


def upgrade() -> None:
    """Create everything in the first schema of the search path, where the functions find each other and the tables."""
    schema = op.get_bind().exec_driver_sql("SELECT (current_schemas(false))[1]").scalar_one()
    for name in FILES:
        op.execute(Path(__file__).with_name(name).read_text(encoding="utf-8").replace(":schema", schema))


def downgrade() -> None:
    """Drop everything, the policies of roles included."""
    op.execute(f"DROP TABLE {', '.join(TABLES)}")
    op.execute(f"DROP FUNCTION {', '.join(FUNCTIONS)} CASCADE")
