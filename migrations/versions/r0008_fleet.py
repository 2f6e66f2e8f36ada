"""Engine sessions say where they run, under which name, and in which state; jobs may name a model.

The engine's side writes `engine_session` from the start of its process to its end. Rows that workers of older code
write have no name, no machine and no devices, and count as ready until they end. `job.model` is a model's name or an
alias (`model_alias`), NULL for any model; `job.engine_name` is the engine that a dispatched job was sent to.
"""

from __future__ import annotations

from alembic import op

revision = "0008"
down_revision = "0006"
branch_labels = None
depends_on = None

STATES = "'loading', 'ready', 'stopping', 'ended'"
WHERE_IT_RUNS = (
    "engine_name text NOT NULL DEFAULT ''",
    "machine text NOT NULL DEFAULT ''",
    "devices text[] NOT NULL DEFAULT '{}'::text[]",
    "address text NOT NULL DEFAULT ''",
    "capacity integer NOT NULL DEFAULT 0",
    "model_name text NOT NULL DEFAULT ''",
    f"state text NOT NULL DEFAULT 'ready' CONSTRAINT ck_engine_session_state CHECK (state IN ({STATES}))",
    "ready_at timestamptz",
    "end_reason text",
)


def upgrade() -> None:
    """Add columns, which rewrites nothing, and the table of aliases."""
    op.execute("ALTER TABLE job ADD COLUMN IF NOT EXISTS model text, ADD COLUMN IF NOT EXISTS engine_name text")
    added = ", ".join(f"ADD COLUMN IF NOT EXISTS {column}" for column in WHERE_IT_RUNS)
    op.execute(f"ALTER TABLE engine_session {added}")
    op.execute("UPDATE engine_session SET state = 'ended' WHERE ended_at IS NOT NULL AND state <> 'ended'")
    op.execute(
        "CREATE TABLE IF NOT EXISTS model_alias (alias text NOT NULL CONSTRAINT pk_model_alias PRIMARY KEY,"
        " model_name text NOT NULL, changed_at timestamptz NOT NULL DEFAULT now())"
    )


def downgrade() -> None:
    """Drop them."""
    op.execute("DROP TABLE IF EXISTS model_alias")
    dropped = ", ".join(f"DROP COLUMN IF EXISTS {column.split()[0]}" for column in reversed(WHERE_IT_RUNS))
    op.execute(f"ALTER TABLE engine_session {dropped}")
    op.execute("ALTER TABLE job DROP COLUMN IF EXISTS engine_name, DROP COLUMN IF EXISTS model")
