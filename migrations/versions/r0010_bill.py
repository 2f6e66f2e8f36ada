"""Usage by hour, tenant, kind and model; drains; what each engine session is billed for.

`usage_by_hour` replaces `usage_hourly`, which stays for reapers of earlier releases, as nothing else reads it. The
reaper closes one hour after the other, beginning with the first attempt in the history. An index finds the attempts
without output of a session.
"""

from __future__ import annotations

from alembic import op

from thothy_ai.db.online import beside_running_work, build_partitioned_index

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

COUNTS = (
    "attempts", "accepted", "rejected", "lost", "dead", "cancelled", "expired",
    "prompt_tokens", "cached_tokens", "output_tokens", "saved_tokens",
)  # fmt: skip
SECONDS = ("resident_seconds", "busy_seconds", "useful_seconds", "review_seconds")
KEY = ("tenant", "kind", "model_name")
DRAIN_COUNTS = ("succeeded", "dead", "cancelled", "expired", "attempts", "with_output", "peak_depth")
PERCENTILES = ("wait_p50", "wait_p95", "wait_p99", "run_p50", "run_p95", "run_p99")
WITHOUT_OUTPUT = "(engine_session_id) WHERE outcome NOT IN ('succeeded', 'rejected')"


def _columns(names: tuple[str, ...], definition: str) -> str:
    return ", ".join(f"{name} {definition}" for name in names)


def upgrade() -> None:
    """Create three tables, add a column, which rewrites nothing, and index lost attempts, partition by partition."""
    op.execute(
        f"CREATE TABLE IF NOT EXISTS usage_by_hour (hour timestamptz NOT NULL, {_columns(KEY, 'text NOT NULL')},"
        f" {_columns(COUNTS, 'bigint NOT NULL DEFAULT 0')}, {_columns(SECONDS, 'double precision NOT NULL DEFAULT 0')},"
        " closed_seconds double precision, revised_at timestamptz,"
        " CONSTRAINT pk_usage_by_hour PRIMARY KEY (hour, tenant, kind, model_name))"
    )
    op.execute(
        "CREATE TABLE IF NOT EXISTS usage_progress (name text NOT NULL CONSTRAINT pk_usage_progress PRIMARY KEY,"
        " closed_until timestamptz NOT NULL)"
    )
    op.execute("INSERT INTO usage_progress VALUES ('default', '-infinity') ON CONFLICT (name) DO NOTHING")
    op.execute(
        "CREATE TABLE IF NOT EXISTS drain (started_at timestamptz NOT NULL CONSTRAINT pk_drain PRIMARY KEY,"
        " ended_at timestamptz NOT NULL, emptied boolean NOT NULL DEFAULT true,"
        f" {_columns(DRAIN_COUNTS, 'bigint NOT NULL DEFAULT 0')}, {_columns(PERCENTILES, 'double precision')},"
        f" {_columns(SECONDS[:3], 'double precision NOT NULL DEFAULT 0')},"
        " recorded_at timestamptz NOT NULL DEFAULT now())"
    )
    op.execute("ALTER TABLE engine_session ADD COLUMN IF NOT EXISTS billed_seconds double precision NOT NULL DEFAULT 0")
    with beside_running_work():
        build_partitioned_index("ix_attempt_without_output", "attempt", WITHOUT_OUTPUT)


def downgrade() -> None:
    """Drop them; `usage_hourly` goes on where the reaper of that release left it."""
    op.execute("DROP INDEX IF EXISTS ix_attempt_without_output")
    op.execute("ALTER TABLE engine_session DROP COLUMN IF EXISTS billed_seconds")
    op.execute("DROP TABLE IF EXISTS drain, usage_progress, usage_by_hour")
