"""Artifacts record how they were made, how they were reviewed, and what they resemble; jobs may have a budget.

`artifact.provenance` has the version of the prompts, the model, seeds, sampling and what each step took;
`artifact.review` the findings of a reviewing model; `artifact.signature` is for the search of near-duplicates. Rows of
older code have none of them, and are never found as duplicates. `job.max_compute_seconds` limits what a job may use.
"""

from __future__ import annotations

from alembic import op

from thothy_ai.db.online import beside_running_work, build_partitioned_index

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

SIGNATURES = "USING gin (signature) WITH (fastupdate = off) WHERE signature IS NOT NULL"


def upgrade() -> None:
    """Add columns, which rewrites nothing, and index signatures, partition by partition."""
    op.execute(
        "ALTER TABLE job ADD COLUMN IF NOT EXISTS max_compute_seconds double precision,"
        " ADD COLUMN IF NOT EXISTS budget_after integer NOT NULL DEFAULT 0"
    )
    op.execute(
        "ALTER TABLE attempt ADD COLUMN IF NOT EXISTS review_seconds double precision NOT NULL DEFAULT 0,"
        " ADD COLUMN IF NOT EXISTS saved_tokens integer NOT NULL DEFAULT 0"
    )
    op.execute(
        "ALTER TABLE artifact ADD COLUMN IF NOT EXISTS provenance jsonb,"
        " ADD COLUMN IF NOT EXISTS review jsonb, ADD COLUMN IF NOT EXISTS signature bigint[]"
    )
    with beside_running_work():
        build_partitioned_index("ix_artifact_signature", "artifact", SIGNATURES)


def downgrade() -> None:
    """Drop them, and the index with its column."""
    op.execute(
        "ALTER TABLE artifact DROP COLUMN IF EXISTS signature, DROP COLUMN IF EXISTS review,"
        " DROP COLUMN IF EXISTS provenance"
    )
    op.execute("ALTER TABLE attempt DROP COLUMN IF EXISTS saved_tokens, DROP COLUMN IF EXISTS review_seconds")
    op.execute("ALTER TABLE job DROP COLUMN IF EXISTS budget_after, DROP COLUMN IF EXISTS max_compute_seconds")
