"""Long texts of requests are stored once per tenant, in `source_text`, and requests refer to them.

Old rows keep their texts. Workers of earlier code cannot read a request that refers to a text: none is written before
the last of them is gone (`queue_control.shares_texts`, which the reaper sets; see `db/sql/queue/share_texts.sql`).
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from thothy_ai.db.online import beside_running_work, build_index
from thothy_ai.db.statements import statement

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

IS_OWN_TEXT = """
    CREATE OR REPLACE FUNCTION {schema}.thothy_is_own_text(text_id uuid) RETURNS boolean
    LANGUAGE plpgsql SET search_path = {schema}, pg_temp AS $$
    BEGIN
        RETURN text_id IS NULL OR EXISTS (SELECT FROM source_text WHERE source_text.id = thothy_is_own_text.text_id);
    END
    $$
"""
COMMENT = (
    "COMMENT ON FUNCTION {schema}.thothy_is_own_text IS"
    " 'Whether the calling role may see the text. Volatile: it sees texts that its statement has just inserted.'"
)
DROP_MONTH = """
    CREATE OR REPLACE FUNCTION {schema}.thothy_drop_month(month text, lock_wait text) RETURNS boolean
    LANGUAGE plpgsql SET search_path = {schema}, pg_temp AS $$
    DECLARE
        first date := to_date(month, 'YYYY_MM');
        parent text;
    BEGIN
        IF EXISTS (
            SELECT FROM job
            WHERE id >= thothy_uuid_floor(first::timestamp AT TIME ZONE 'UTC')
                AND id < thothy_uuid_floor((first + interval '1 month') AT TIME ZONE 'UTC')
        ) THEN
            RETURN false;
        END IF;
        PERFORM set_config('lock_timeout', lock_wait, true);
        FOREACH parent IN ARRAY ARRAY['attempt', 'artifact', 'job_event'] LOOP
            EXECUTE format('DROP TABLE IF EXISTS %I', parent || to_char(first, '_YYYY_MM'));
        END LOOP;
        RETURN true;
    END
    $$
"""
DROP_COMMENT = (
    "COMMENT ON FUNCTION {schema}.thothy_drop_month IS"
    " 'Drops the partitions of a month (YYYY_MM) that has no jobs left; waits so long for each of their locks.'"
)
CONSTRAINTS = {
    "fk_job_request_text_id": "FOREIGN KEY (text_id) REFERENCES source_text (id)",
    "ck_job_request_text": "CHECK ((text_id IS NULL) = (text_field IS NULL))",
}
# Of the roles that there are; new ones are made with these terms.
POLICIES = """
    SELECT policyname FROM pg_policies
    WHERE schemaname = current_schema() AND tablename = 'job_request' AND policyname = 'producer_insert_' || roles[1]
"""
OWN_JOB = "thothy_is_own_job(job_id)"
RESTORE = """
    UPDATE job_request SET request = request || jsonb_build_object(text_field, content)
    FROM source_text
    WHERE source_text.id = text_id
"""


def _schema() -> str:
    return str(op.get_bind().exec_driver_sql("SELECT (current_schemas(false))[1]").scalar_one())


def _change_policies(check: str) -> None:
    for policy in op.get_bind().scalars(sa.text(POLICIES)).all():
        op.execute(f'ALTER POLICY "{policy}" ON job_request WITH CHECK ({check})')


def _add_constraints() -> None:
    """Unchecked at first: that needs no scan under a lock which writers wait for."""
    bind = op.get_bind()
    for name, definition in CONSTRAINTS.items():
        found = sa.text("SELECT FROM pg_constraint WHERE conname = :name AND conrelid = to_regclass('job_request')")
        if bind.execute(found, {"name": name}).first() is None:
            op.execute(f"ALTER TABLE job_request ADD CONSTRAINT {name} {definition} NOT VALID")


def upgrade() -> None:
    """Create the table and refer to it. May be run again from its start."""
    op.execute(
        "CREATE TABLE IF NOT EXISTS source_text ("
        " id uuid CONSTRAINT pk_source_text PRIMARY KEY, tenant text NOT NULL, digest text NOT NULL,"
        " content text NOT NULL, stored_at timestamptz NOT NULL DEFAULT now())"
    )
    op.execute("CREATE INDEX IF NOT EXISTS ix_source_text_tenant ON source_text (tenant, digest)")
    op.execute(
        "ALTER TABLE job_request ADD COLUMN IF NOT EXISTS text_field text, ADD COLUMN IF NOT EXISTS text_id uuid"
    )
    op.execute(
        "ALTER TABLE queue_control ADD COLUMN IF NOT EXISTS upgraded_at timestamptz NOT NULL DEFAULT now(),"
        " ADD COLUMN IF NOT EXISTS shares_texts boolean NOT NULL DEFAULT false"
    )
    _add_constraints()
    for definition in (IS_OWN_TEXT, COMMENT, DROP_MONTH, DROP_COMMENT):
        op.execute(definition.format(schema=_schema()))
    _change_policies(f"{OWN_JOB} AND thothy_is_own_text(text_id)")
    with beside_running_work():
        build_index("ix_job_request_text_id", "(text_id) WHERE text_id IS NOT NULL", table="job_request")
        for name in CONSTRAINTS:
            op.execute(f"ALTER TABLE job_request VALIDATE CONSTRAINT {name}")
    op.get_bind().execute(statement("queue/share_texts"))


def downgrade() -> None:
    """Write the texts back into their requests. Producers of this version fail from then on."""
    op.execute("LOCK TABLE queue_control IN ACCESS EXCLUSIVE MODE")  # no producer decides to share a text meanwhile
    op.execute("ALTER TABLE queue_control DROP COLUMN IF EXISTS shares_texts, DROP COLUMN IF EXISTS upgraded_at")
    op.execute(RESTORE)
    _change_policies(OWN_JOB)
    op.execute(
        "ALTER TABLE job_request DROP CONSTRAINT IF EXISTS ck_job_request_text,"
        " DROP COLUMN IF EXISTS text_id, DROP COLUMN IF EXISTS text_field"
    )
    op.execute("DROP FUNCTION IF EXISTS thothy_is_own_text, thothy_drop_month")
    op.execute("DROP TABLE source_text")
