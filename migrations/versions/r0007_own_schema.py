"""All tables, functions and the version table are in a schema of their own; policies may limit a role to its tenant.

A new installation is in its schema from its first revision on, and nothing moves. The move writes only the catalogue:
statements wait for it as they wait for a new column.
"""

from __future__ import annotations

from alembic import op

from thothy_ai.db.own_schema import SHARED, is_ours, move

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

IS_OWN_JOB = """
    CREATE OR REPLACE FUNCTION {schema}.thothy_is_own_job(job_id uuid) RETURNS boolean
    LANGUAGE plpgsql SET search_path = {schema}, pg_temp AS $$
    BEGIN
        RETURN EXISTS (SELECT FROM job WHERE job.id = thothy_is_own_job.job_id);
    END
    $$
"""
COMMENT = (
    "COMMENT ON FUNCTION {schema}.thothy_is_own_job IS"
    " 'Whether the calling role may see the job. Volatile: it sees jobs that its statement has just inserted.'"
)


def _schema() -> str:
    """The schema: the first that the connection searches."""
    return str(op.get_bind().exec_driver_sql("SELECT (current_schemas(false))[1]").scalar_one())


def upgrade() -> None:
    """Move what is in `public`, if it is ours, and create the function that the policies of roles use."""
    schema = _schema()
    if is_ours(op.get_bind(), SHARED):
        move(SHARED, schema)
    op.execute(IS_OWN_JOB.format(schema=schema))
    op.execute(COMMENT.format(schema=schema))


def downgrade() -> None:
    """Move everything to `public`, where older code looks for it. Roles of tenants can no longer enqueue."""
    schema = _schema()
    op.execute(f"DROP FUNCTION IF EXISTS {schema}.thothy_is_own_job CASCADE")
    if schema != SHARED:
        move(schema, SHARED)
        op.execute(f"SET search_path = {schema}, {SHARED}")
