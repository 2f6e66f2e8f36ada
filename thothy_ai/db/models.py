"""The schema. ORM rows are for reading; the hot statements are in `db/sql/`.

    job ─┬─ job_request ┄ source_text  small, hot: its state machine  (one row per job; one text for many requests)
         │
         ├┄ attempt                  append-only, partitioned by month of the job's id, without foreign keys,
         ├┄ artifact                 so that an old month is deleted by dropping its partition
         └┄ job_event
    engine_session · usage_hourly · queue_control

`attempt` on a job counts claims and fences results; `failures` counts against `max_attempts`.
`worker` and `lease_until` are set exactly while a job runs; `started_at` (of the last claim) stays after.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import CheckConstraint, ForeignKey, Index, UniqueConstraint, func
from sqlalchemy import text as sql
from sqlalchemy.orm import Mapped, mapped_column

from thothy_ai.db.base import Base, Big, Small, one_of
from thothy_ai.db.fragments import PLANNED_ORDER, WAITING
from thothy_ai.db.states import TERMINAL, Event, JobState, Outcome, Verdict

ZERO = sql("0")
NOW = func.now()
PARTITIONED = {"postgresql_partition_by": "RANGE (job_id)"}
TERMINAL_SQL = "state IN ({})".format(", ".join(f"'{state}'" for state in JobState if state in TERMINAL))


class Job(Base):
    """One unit of work and where it is."""

    __tablename__ = "job"

    id: Mapped[UUID] = mapped_column(primary_key=True)  # UUIDv7, made by the producer
    tenant: Mapped[str]
    kind: Mapped[str]
    state: Mapped[str] = mapped_column(server_default=sql("'queued'"))
    priority: Mapped[Small] = mapped_column(server_default=ZERO)  # higher goes first
    deadline: Mapped[datetime | None]
    not_before: Mapped[datetime] = mapped_column(server_default=NOW)
    scheduled_for: Mapped[datetime | None]  # its `not_before` when it was enqueued, if that was later
    delayed: Mapped[bool] = mapped_column(server_default=sql("false"))  # not in the dispatcher's index yet
    source_key: Mapped[str]  # jobs over the same source share it, and run near each other
    idempotency_key: Mapped[str | None]
    request_digest: Mapped[str]
    parent_id: Mapped[UUID | None]

    attempt: Mapped[int] = mapped_column(server_default=ZERO)
    failures: Mapped[Small] = mapped_column(server_default=ZERO)
    max_attempts: Mapped[Small]
    engine_deaths: Mapped[Small] = mapped_column(server_default=ZERO)
    max_compute_seconds: Mapped[float | None]  # that its attempts may use together, those after `budget_after`
    budget_after: Mapped[int] = mapped_column(server_default=ZERO)

    dispatch_no: Mapped[int] = mapped_column(server_default=ZERO)
    dispatched_at: Mapped[datetime | None]
    worker: Mapped[str | None]
    engine_session_id: Mapped[UUID | None]  # that the last claim was for
    lease_until: Mapped[datetime | None]
    started_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]
    cancel_requested: Mapped[bool] = mapped_column(server_default=sql("false"))
    reason: Mapped[str | None]
    detail: Mapped[str | None]
    enqueued_at: Mapped[datetime] = mapped_column(server_default=NOW)

    __table_args__ = (
        UniqueConstraint("tenant", "idempotency_key"),
        one_of("state", JobState),
        CheckConstraint("priority BETWEEN -100 AND 100", name="priority"),
        CheckConstraint("max_attempts >= 1", name="max_attempts"),
        CheckConstraint("attempt >= 0 AND failures >= 0 AND engine_deaths >= 0", name="counters"),
        CheckConstraint(
            "CASE WHEN state = 'running' THEN num_nulls(worker, lease_until, started_at) = 0"
            " ELSE num_nonnulls(worker, lease_until) = 0 END",
            name="running",
        ),
        CheckConstraint("state <> 'dispatched' OR dispatched_at IS NOT NULL", name="dispatched"),
        CheckConstraint(f"({TERMINAL_SQL}) = (finished_at IS NOT NULL)", name="terminal"),
        CheckConstraint("state <> 'dead' OR reason IS NOT NULL", name="dead"),
        Index(
            "ix_job_queued",
            *(term if term.isidentifier() else sql(term) for term in PLANNED_ORDER),
            postgresql_where=sql("state = 'queued' AND NOT delayed"),
        ),
        Index("ix_job_delayed", "not_before", postgresql_where=sql("state = 'queued' AND delayed")),
        # Not over lease_until: each heartbeat changes it, and must not have to write every index again.
        Index("ix_job_running", "worker", postgresql_where=sql("state = 'running'")),
        # Each dispatch reads the lowest priority, newest entries first: those of claimed jobs stay until a vacuum.
        Index("ix_job_dispatched", "priority", sql("dispatched_at DESC"), postgresql_where=sql("state = 'dispatched'")),
        Index("ix_job_deadline", "deadline", postgresql_where=sql(f"{WAITING} AND deadline IS NOT NULL")),
        Index("ix_job_cancelled", "id", postgresql_where=sql(f"{WAITING} AND cancel_requested")),
        Index("ix_job_terminal", "finished_at", postgresql_where=sql("finished_at IS NOT NULL")),
        Index("ix_job_dead", "finished_at", "id", postgresql_where=sql("state = 'dead'")),  # few among all that ended
        Index("ix_job_parent", "parent_id", postgresql_where=sql("parent_id IS NOT NULL")),
        {"postgresql_with": {"fillfactor": 70, "autovacuum_vacuum_scale_factor": 0.02}},
    )


class JobRequest(Base):
    """A job's request, beside it so that the hot row stays small. Its longest text may be a `SourceText`."""

    __tablename__ = "job_request"

    job_id: Mapped[UUID] = mapped_column(ForeignKey("job.id", ondelete="CASCADE"), primary_key=True)
    request: Mapped[dict[str, Any]]  # without `text_field`, if there is one
    text_field: Mapped[str | None]
    text_id: Mapped[UUID | None] = mapped_column(ForeignKey("source_text.id"))

    __table_args__ = (
        CheckConstraint("(text_id IS NULL) = (text_field IS NULL)", name="text"),
        Index("ix_job_request_text_id", "text_id", postgresql_where=sql("text_id IS NOT NULL")),
    )


class SourceText(Base):
    """A long text of a tenant's requests, which refer to it. Never changed; deleted when none refers to it any more.

    Not unique: two transactions that store the same text at once each store it, and neither waits for the other.
    """

    __tablename__ = "source_text"

    id: Mapped[UUID] = mapped_column(primary_key=True)
    tenant: Mapped[str]
    digest: Mapped[str]
    content: Mapped[str]
    stored_at: Mapped[datetime] = mapped_column(server_default=NOW)

    __table_args__ = (Index("ix_source_text_tenant", "tenant", "digest"),)


class Attempt(Base):
    """One try at a job, and its usage."""

    __tablename__ = "attempt"

    job_id: Mapped[UUID] = mapped_column(primary_key=True)
    attempt: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    tenant: Mapped[str]
    kind: Mapped[str]
    worker: Mapped[str]
    engine_session_id: Mapped[UUID | None]
    started_at: Mapped[datetime]
    finished_at: Mapped[datetime] = mapped_column(server_default=NOW)
    outcome: Mapped[str]
    reason: Mapped[str | None]
    detail: Mapped[str | None]
    prompt_tokens: Mapped[int] = mapped_column(server_default=ZERO)
    cached_tokens: Mapped[int] = mapped_column(server_default=ZERO)
    output_tokens: Mapped[int] = mapped_column(server_default=ZERO)
    compute_seconds: Mapped[float] = mapped_column(server_default=ZERO)
    review_seconds: Mapped[float] = mapped_column(server_default=ZERO)  # of those, by a reviewing model
    saved_tokens: Mapped[int] = mapped_column(server_default=ZERO)  # of the budgets of calls that were stopped early

    __table_args__ = (
        one_of("outcome", Outcome),
        Index("ix_attempt_finished_at", "finished_at"),
        PARTITIONED,
    )


class Artifact(Base):
    """An output and the validators' verdict; a succeeded job has one accepted row per (kind, locale)."""

    __tablename__ = "artifact"

    job_id: Mapped[UUID] = mapped_column(primary_key=True)
    kind: Mapped[str] = mapped_column(primary_key=True)
    locale: Mapped[str] = mapped_column(primary_key=True)
    attempt: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    tenant: Mapped[str]
    verdict: Mapped[str]
    reason: Mapped[str | None]
    body: Mapped[dict[str, Any] | None]  # the artifact, when the output parsed
    text: Mapped[str]  # the raw output
    created_at: Mapped[datetime] = mapped_column(server_default=NOW)
    provenance: Mapped[dict[str, Any] | None]  # version of the prompts, model, seeds, sampling; what each step took
    review: Mapped[dict[str, Any] | None]  # a reviewing model's findings, and what they took
    signature: Mapped[list[int] | None]  # for the search of near-duplicates: equal elements are probably similar texts

    __table_args__ = (
        one_of("verdict", Verdict),
        CheckConstraint("verdict <> 'accepted' OR (body IS NOT NULL AND reason IS NULL)", name="accepted"),
        CheckConstraint("verdict <> 'rejected' OR reason IS NOT NULL", name="rejected"),
        Index(
            "uq_artifact_accepted",
            "job_id",
            "kind",
            "locale",
            unique=True,
            postgresql_where=sql("verdict = 'accepted'"),
        ),
        Index("ix_artifact_created_at", "created_at"),
        # Searches read all of a list of pending entries: new ones go into the index at once.
        Index(
            "ix_artifact_signature",
            "signature",
            postgresql_using="gin",
            postgresql_with={"fastupdate": "off"},
            postgresql_where=sql("signature IS NOT NULL"),
        ),
        PARTITIONED,
    )


class JobEvent(Base):
    """An unusual event in a job's history."""

    __tablename__ = "job_event"

    job_id: Mapped[UUID] = mapped_column(primary_key=True)
    at: Mapped[datetime] = mapped_column(primary_key=True, server_default=NOW)
    event: Mapped[str] = mapped_column(primary_key=True)
    detail: Mapped[str | None]

    __table_args__ = (one_of("event", Event), PARTITIONED)


class EngineSession(Base):
    """One run of an engine process: the resident model, from when to when, and the engine's counters."""

    __tablename__ = "engine_session"

    id: Mapped[UUID] = mapped_column(primary_key=True)
    model: Mapped[str]
    device: Mapped[str]
    dtype: Mapped[str]
    gpus: Mapped[int]
    num_blocks: Mapped[int]
    block_size: Mapped[int]
    started_at: Mapped[datetime]
    heartbeat_at: Mapped[datetime] = mapped_column(server_default=NOW)
    ended_at: Mapped[datetime | None]
    settled_at: Mapped[datetime | None]  # when unbilled usage was divided over its lost attempts
    busy_seconds: Mapped[float] = mapped_column(server_default=ZERO)
    prefill_seconds: Mapped[float] = mapped_column(server_default=ZERO)
    decode_seconds: Mapped[float] = mapped_column(server_default=ZERO)
    prompt_tokens: Mapped[Big] = mapped_column(server_default=ZERO)
    cached_tokens: Mapped[Big] = mapped_column(server_default=ZERO)
    output_tokens: Mapped[Big] = mapped_column(server_default=ZERO)


class UsageHourly(Base):
    """Finished jobs and usage per hour, tenant and kind; outlives the history it was summed from."""

    __tablename__ = "usage_hourly"

    hour: Mapped[datetime] = mapped_column(primary_key=True)
    tenant: Mapped[str] = mapped_column(primary_key=True)
    kind: Mapped[str] = mapped_column(primary_key=True)
    succeeded: Mapped[Big] = mapped_column(server_default=ZERO)  # jobs
    dead: Mapped[Big] = mapped_column(server_default=ZERO)
    cancelled: Mapped[Big] = mapped_column(server_default=ZERO)
    expired: Mapped[Big] = mapped_column(server_default=ZERO)
    accepted: Mapped[Big] = mapped_column(server_default=ZERO)  # artifacts
    rejected: Mapped[Big] = mapped_column(server_default=ZERO)
    attempts: Mapped[Big] = mapped_column(server_default=ZERO)
    lost: Mapped[Big] = mapped_column(server_default=ZERO)  # attempts
    prompt_tokens: Mapped[Big] = mapped_column(server_default=ZERO)
    cached_tokens: Mapped[Big] = mapped_column(server_default=ZERO)
    output_tokens: Mapped[Big] = mapped_column(server_default=ZERO)
    compute_seconds: Mapped[float] = mapped_column(server_default=ZERO)


class QueueControl(Base):
    """Whether an operator has paused the queue, and whether requests may refer to texts. One row, `default`."""

    __tablename__ = "queue_control"

    name: Mapped[str] = mapped_column(primary_key=True)
    paused: Mapped[bool] = mapped_column(server_default=sql("false"))
    changed_at: Mapped[datetime] = mapped_column(server_default=NOW)
    note: Mapped[str | None]
    upgraded_at: Mapped[datetime] = mapped_column(server_default=NOW)  # to revision 0013
    shares_texts: Mapped[bool] = mapped_column(server_default=sql("false"))  # no worker is left that cannot read them
