"""The queue: jobs and their requests, history by month, engine sessions, usage, control."""

from __future__ import annotations

from pathlib import Path

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

STATES = "'queued', 'dispatched', 'running', 'succeeded', 'dead', 'cancelled', 'expired'"
OUTCOMES = "'succeeded', 'rejected', 'failed', 'lost', 'released', 'cancelled', 'expired'"
EVENTS = "'retried', 'lost', 'republished', 'dead', 'rejected', 'cancelled', 'expired', 'released', 'redriven'"
WAITING = "state IN ('queued', 'dispatched')"
BY_MONTH = "RANGE (job_id)"


def upgrade() -> None:
    """Create everything."""
    _create_job()
    _create_attempt()
    _create_artifact()
    _create_job_event()
    _create_engine_session()
    _create_usage_hourly()
    _create_queue_control()
    op.execute(Path(__file__).with_name("r0001_partitions.sql").read_text(encoding="utf-8"))


def downgrade() -> None:
    """Drop everything."""
    op.execute("DROP FUNCTION thothy_ensure_partitions, thothy_uuid_floor")
    for table in (
        "queue_control",
        "usage_hourly",
        "engine_session",
        "job_event",
        "artifact",
        "attempt",
        "job_request",
        "job",
    ):
        op.drop_table(table)


def _text(name: str, *, null: bool = False) -> sa.Column[str]:
    return sa.Column(name, sa.Text(), nullable=null)


def _uuid(name: str, *, null: bool = False) -> sa.Column[object]:
    return sa.Column(name, sa.Uuid(), nullable=null)


def _int(name: str, kind: type[sa.Integer] = sa.Integer, default: str | None = "0") -> sa.Column[int]:
    return sa.Column(name, kind(), nullable=False, server_default=sa.text(default) if default else None)


def _seconds(name: str) -> sa.Column[float]:
    return sa.Column(name, sa.Double(), nullable=False, server_default=sa.text("0"))


def _bool(name: str) -> sa.Column[bool]:
    return sa.Column(name, sa.Boolean(), nullable=False, server_default=sa.text("false"))


def _time(name: str, *, null: bool = False, now: bool = False) -> sa.Column[object]:
    return sa.Column(name, sa.DateTime(timezone=True), nullable=null, server_default=sa.text("now()") if now else None)


def _check(rule: str, name: str) -> sa.CheckConstraint:
    return sa.CheckConstraint(rule, name=op.f(name))


def _create_job() -> None:
    op.create_table(
        "job",
        _uuid("id"),
        _text("tenant"),
        _text("kind"),
        sa.Column("state", sa.Text(), nullable=False, server_default=sa.text("'queued'")),
        _int("priority", sa.SmallInteger),
        _time("deadline", null=True),
        _time("not_before", now=True),
        _text("source_key"),
        _text("idempotency_key", null=True),
        _text("request_digest"),
        _uuid("parent_id", null=True),
        _int("attempt"),
        _int("failures", sa.SmallInteger),
        _int("max_attempts", sa.SmallInteger, default=None),
        _int("engine_deaths", sa.SmallInteger),
        _int("dispatch_no"),
        _time("dispatched_at", null=True),
        _text("worker", null=True),
        _time("lease_until", null=True),
        _time("started_at", null=True),
        _time("finished_at", null=True),
        _bool("cancel_requested"),
        _text("reason", null=True),
        _text("detail", null=True),
        _time("enqueued_at", now=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_job")),
        sa.UniqueConstraint("tenant", "idempotency_key", name=op.f("uq_job_tenant_idempotency_key")),
        _check(f"state IN ({STATES})", "ck_job_state"),
        _check("priority BETWEEN -100 AND 100", "ck_job_priority"),
        _check("max_attempts >= 1", "ck_job_max_attempts"),
        _check("attempt >= 0 AND failures >= 0 AND engine_deaths >= 0", "ck_job_counters"),
        _check(
            "CASE WHEN state = 'running' THEN num_nulls(worker, lease_until, started_at) = 0"
            " ELSE num_nonnulls(worker, lease_until) = 0 END",
            "ck_job_running",
        ),
        _check("state <> 'dispatched' OR dispatched_at IS NOT NULL", "ck_job_dispatched"),
        _check(
            "(state IN ('succeeded', 'dead', 'cancelled', 'expired')) = (finished_at IS NOT NULL)",
            "ck_job_terminal",
        ),
        _check("state <> 'dead' OR reason IS NOT NULL", "ck_job_dead"),
        postgresql_with={"fillfactor": 70, "autovacuum_vacuum_scale_factor": 0.02},
    )
    due: list[str | sa.TextClause] = [
        sa.text("priority DESC"),
        sa.text("deadline NULLS LAST"),
        sa.text("date_bin('00:10:00', enqueued_at, '1970-01-01 00:00:00+00')"),
        "source_key",
        "id",
    ]
    op.create_index("ix_job_queued", "job", due, postgresql_where=sa.text("state = 'queued'"))
    for name, column, where in (
        ("ix_job_running", "worker", "state = 'running'"),
        ("ix_job_dispatched", "dispatched_at", "state = 'dispatched'"),
        ("ix_job_deadline", "deadline", f"{WAITING} AND deadline IS NOT NULL"),
        ("ix_job_cancelled", "id", f"{WAITING} AND cancel_requested"),
        ("ix_job_terminal", "finished_at", "finished_at IS NOT NULL"),
        ("ix_job_parent", "parent_id", "parent_id IS NOT NULL"),
    ):
        op.create_index(name, "job", [column], postgresql_where=sa.text(where))
    op.create_table(
        "job_request",
        _uuid("job_id"),
        sa.Column("request", JSONB(), nullable=False),
        sa.PrimaryKeyConstraint("job_id", name=op.f("pk_job_request")),
        sa.ForeignKeyConstraint(["job_id"], ["job.id"], name=op.f("fk_job_request_job_id"), ondelete="CASCADE"),
    )


def _create_attempt() -> None:
    op.create_table(
        "attempt",
        _uuid("job_id"),
        _int("attempt", default=None),
        _text("tenant"),
        _text("kind"),
        _text("worker"),
        _uuid("engine_session_id", null=True),
        _time("started_at"),
        _time("finished_at", now=True),
        _text("outcome"),
        _text("reason", null=True),
        _text("detail", null=True),
        _int("prompt_tokens"),
        _int("cached_tokens"),
        _int("output_tokens"),
        _seconds("compute_seconds"),
        sa.PrimaryKeyConstraint("job_id", "attempt", name=op.f("pk_attempt")),
        _check(f"outcome IN ({OUTCOMES})", "ck_attempt_outcome"),
        postgresql_partition_by=BY_MONTH,
    )
    op.create_index("ix_attempt_finished_at", "attempt", ["finished_at"])


def _create_artifact() -> None:
    op.create_table(
        "artifact",
        _uuid("job_id"),
        _text("kind"),
        _text("locale"),
        _int("attempt", default=None),
        _text("tenant"),
        _text("verdict"),
        _text("reason", null=True),
        sa.Column("body", JSONB(), nullable=True),
        _text("text"),
        _time("created_at", now=True),
        sa.PrimaryKeyConstraint("job_id", "kind", "locale", "attempt", name=op.f("pk_artifact")),
        _check("verdict IN ('accepted', 'rejected')", "ck_artifact_verdict"),
        _check("verdict <> 'accepted' OR (body IS NOT NULL AND reason IS NULL)", "ck_artifact_accepted"),
        _check("verdict <> 'rejected' OR reason IS NOT NULL", "ck_artifact_rejected"),
        postgresql_partition_by=BY_MONTH,
    )
    op.create_index(
        "uq_artifact_accepted",
        "artifact",
        ["job_id", "kind", "locale"],
        unique=True,
        postgresql_where=sa.text("verdict = 'accepted'"),
    )
    op.create_index("ix_artifact_created_at", "artifact", ["created_at"])


def _create_job_event() -> None:
    op.create_table(
        "job_event",
        _uuid("job_id"),
        _time("at", now=True),
        _text("event"),
        _text("detail", null=True),
        sa.PrimaryKeyConstraint("job_id", "at", "event", name=op.f("pk_job_event")),
        _check(f"event IN ({EVENTS})", "ck_job_event_event"),
        postgresql_partition_by=BY_MONTH,
    )


def _create_engine_session() -> None:
    op.create_table(
        "engine_session",
        _uuid("id"),
        _text("model"),
        _text("device"),
        _text("dtype"),
        _int("gpus", default=None),
        _int("num_blocks", default=None),
        _int("block_size", default=None),
        _time("started_at"),
        _time("heartbeat_at", now=True),
        _time("ended_at", null=True),
        _seconds("busy_seconds"),
        _seconds("prefill_seconds"),
        _seconds("decode_seconds"),
        _int("prompt_tokens", sa.BigInteger),
        _int("cached_tokens", sa.BigInteger),
        _int("output_tokens", sa.BigInteger),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_engine_session")),
    )


def _create_usage_hourly() -> None:
    counts = ("succeeded", "dead", "cancelled", "expired", "accepted", "rejected", "attempts", "lost")
    tokens = ("prompt_tokens", "cached_tokens", "output_tokens")
    op.create_table(
        "usage_hourly",
        _time("hour"),
        _text("tenant"),
        _text("kind"),
        *(_int(name, sa.BigInteger) for name in counts + tokens),
        _seconds("compute_seconds"),
        sa.PrimaryKeyConstraint("hour", "tenant", "kind", name=op.f("pk_usage_hourly")),
    )


def _create_queue_control() -> None:
    op.create_table(
        "queue_control",
        _text("name"),
        _bool("paused"),
        _time("changed_at", now=True),
        _text("note", null=True),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_queue_control")),
    )
    op.execute("INSERT INTO queue_control (name) VALUES ('default')")
