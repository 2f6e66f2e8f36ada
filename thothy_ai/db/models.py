"""The schema. ORM rows are for reading; the hot statements are in `db/sql/`.

    job ─┬─ job_request ┄ source_text  small, hot: its state machine  (one row per job; one text for many requests)
         │
         ├┄ attempt                  append-only, partitioned by month of the job's id, without foreign keys,
         ├┄ artifact                 so that an old month is deleted by dropping its partition
         ├┄ job_event
         │
         └── decision, artifact_version    what people decided, and the versions that they wrote  (desk_models.py)
    batch ── webhook_delivery     calls that asked for a webhook, and what is to be sent
    api_batch ── stored_file      OpenAI's Batch API
    engine_session · model_alias · api_key · queue_control · queue_pause
    brief · measured_verifier · review_draft  (desk_models.py)
    console_secret · console_link · console_session · audit_log  (desk_models.py)
    usage_by_hour · interactive_usage · usage_progress · drain  (usage_models.py)

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
from thothy_ai.db.desk_models import ArtifactVersionRow, DecisionRow
from thothy_ai.db.fragments import DECIDED, OPEN_BATCH, PLANNED_ORDER, UNDECIDED, UNDELIVERED, WAITING
from thothy_ai.db.states import (
    TERMINAL,
    ArtifactVerdict,
    BatchStatus,
    EngineState,
    Event,
    FilePurpose,
    JobState,
    Notify,
    Outcome,
    ReviewState,
)
from thothy_ai.db.usage_models import DrainRow, InteractiveUsageRow, UsageByHourRow, UsageProgressRow

__all__ = (
    "ApiBatchRow",
    "ApiKeyRow",
    "ArtifactRow",
    "ArtifactVersionRow",
    "AttemptRow",
    "Base",
    "BatchRow",
    "DecisionRow",
    "DrainRow",
    "EngineSessionRow",
    "ForecastRow",
    "ForecastStateRow",
    "InteractiveUsageRow",
    "JobEventRow",
    "JobRequestRow",
    "JobRow",
    "ModelAliasRow",
    "QueueControlRow",
    "UsageByHourRow",
    "UsageProgressRow",
    "WebhookDeliveryRow",
)  # fmt: skip
ZERO = sql("0")
EMPTY = sql("''")
NOW = func.now()
PLANNED = tuple(term if term.isidentifier() else sql(term) for term in PLANNED_ORDER)
PARTITIONED = {"postgresql_partition_by": "RANGE (job_id)"}
TERMINAL_SQL = "state IN ({})".format(", ".join(f"'{state}'" for state in JobState if state in TERMINAL))


class JobRow(Base):
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
    batch_id: Mapped[UUID | None]  # of the call that asked for a webhook; follow-ups have their parent's

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
    model: Mapped[str | None]  # a model's or an adapter's name, or an alias; without one, any model serves
    adapter: Mapped[str] = mapped_column(server_default=EMPTY)  # that its last claim was for; empty: the model itself
    engine_name: Mapped[str | None]  # the engine that its last dispatch was for
    version: Mapped[int] = mapped_column(server_default=sql("1"))  # of its artifact: an edit, or a note, makes another
    review: Mapped[str | None]  # of a succeeded job: what waits for a person, or the decision; NULL: nothing waits

    __table_args__ = (
        UniqueConstraint("tenant", "idempotency_key"),
        one_of("state", JobState),
        one_of("review", ReviewState),
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
        CheckConstraint("review IS NULL OR state = 'succeeded'", name="reviewed"),
        Index("ix_job_queued", *PLANNED, postgresql_where=sql("state = 'queued' AND NOT delayed AND model IS NULL")),
        # What is next for each model, whatever waits for another.
        Index(
            "ix_job_queued_model",
            "model",
            *PLANNED,
            postgresql_where=sql("state = 'queued' AND NOT delayed AND model IS NOT NULL"),
        ),
        Index("ix_job_delayed", "not_before", postgresql_where=sql("state = 'queued' AND delayed")),
        # Not over lease_until: each heartbeat changes it, and must not have to write every index again.
        Index("ix_job_running", "worker", postgresql_where=sql("state = 'running'")),
        # Each dispatch reads the lowest priorities, newest entries first: those of claimed jobs stay until a vacuum.
        Index(
            "ix_job_dispatched",
            "engine_name",
            "priority",
            sql("dispatched_at DESC"),
            postgresql_where=sql("state = 'dispatched'"),
        ),
        Index("ix_job_deadline", "deadline", postgresql_where=sql(f"{WAITING} AND deadline IS NOT NULL")),
        Index("ix_job_cancelled", "id", postgresql_where=sql(f"{WAITING} AND cancel_requested")),
        Index("ix_job_terminal", "finished_at", postgresql_where=sql("finished_at IS NOT NULL")),
        Index("ix_job_dead", "finished_at", "id", postgresql_where=sql("state = 'dead'")),  # few among all that ended
        Index("ix_job_review", "finished_at", "id", postgresql_where=sql(UNDECIDED)),
        Index("ix_job_decided", "finished_at", postgresql_where=sql(DECIDED)),
        # With the id, in whose order lists are: a primary key would be walked through all newer jobs instead.
        Index("ix_job_parent", "parent_id", "id", postgresql_where=sql("parent_id IS NOT NULL")),
        Index("ix_job_batch", "batch_id", "id", postgresql_where=sql("batch_id IS NOT NULL")),
        # Whether a job of a batch is open is one look; the others are read once, to be counted.
        Index("ix_job_batch_open", "batch_id", postgresql_where=sql("batch_id IS NOT NULL AND finished_at IS NULL")),
        {"postgresql_with": {"fillfactor": 70, "autovacuum_vacuum_scale_factor": 0.02}},
    )


class JobRequestRow(Base):
    """A job's request, beside it so that the hot row stays small. Its longest text may be a `SourceTextRow`."""

    __tablename__ = "job_request"

    job_id: Mapped[UUID] = mapped_column(ForeignKey("job.id", ondelete="CASCADE"), primary_key=True)
    request: Mapped[dict[str, Any]]  # without `text_field`, if there is one
    text_field: Mapped[str | None]
    text_id: Mapped[UUID | None] = mapped_column(ForeignKey("source_text.id"))

    __table_args__ = (
        CheckConstraint("(text_id IS NULL) = (text_field IS NULL)", name="text"),
        Index("ix_job_request_text_id", "text_id", postgresql_where=sql("text_id IS NOT NULL")),
    )


class SourceTextRow(Base):
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


class AttemptRow(Base):
    """One try at a job, and its usage."""

    __tablename__ = "attempt"

    job_id: Mapped[UUID] = mapped_column(primary_key=True)
    attempt: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    tenant: Mapped[str]
    kind: Mapped[str]
    worker: Mapped[str]
    engine_session_id: Mapped[UUID | None]
    adapter: Mapped[str] = mapped_column(server_default=EMPTY)  # that it was for; empty: the model itself
    started_at: Mapped[datetime]
    finished_at: Mapped[datetime] = mapped_column(server_default=NOW)
    outcome: Mapped[str]
    reason: Mapped[str | None]
    detail: Mapped[str | None]
    prompt_tokens: Mapped[int] = mapped_column(server_default=ZERO)
    cached_tokens: Mapped[int] = mapped_column(server_default=ZERO)
    output_tokens: Mapped[int] = mapped_column(server_default=ZERO)
    compute_seconds: Mapped[float] = mapped_column(server_default=ZERO)
    verification_seconds: Mapped[float] = mapped_column(server_default=ZERO)  # of those, by a verifying model
    saved_tokens: Mapped[int] = mapped_column(server_default=ZERO)  # of the budgets of calls that were stopped early

    __table_args__ = (
        one_of("outcome", Outcome),
        Index("ix_attempt_finished_at", "finished_at"),
        Index(  # what is left of a session's usage is divided over these
            "ix_attempt_without_output",
            "engine_session_id",
            postgresql_where=sql("outcome NOT IN ('succeeded', 'rejected')"),
        ),
        PARTITIONED,
    )


class ArtifactRow(Base):
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
    verification: Mapped[dict[str, Any] | None]  # claims with their labels, and what that took
    findings: Mapped[list[dict[str, Any]]] = mapped_column(server_default=sql("'[]'"))  # as `Finding.stored`
    draft: Mapped[bool] = mapped_column(server_default=sql("false"))  # a person may edit it if no attempt is accepted
    signature: Mapped[list[int] | None]  # for the search of near-duplicates: equal elements are probably similar texts

    __table_args__ = (
        one_of("verdict", ArtifactVerdict),
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


class JobEventRow(Base):
    """An unusual event in a job's history."""

    __tablename__ = "job_event"

    job_id: Mapped[UUID] = mapped_column(primary_key=True)
    at: Mapped[datetime] = mapped_column(primary_key=True, server_default=NOW)
    event: Mapped[str] = mapped_column(primary_key=True)
    detail: Mapped[str | None]

    __table_args__ = (one_of("event", Event), PARTITIONED)


class EngineSessionRow(Base):
    """One run of an engine process: the resident model, where, from when to when, and the engine's counters.

    Written by the engine's own side, its registrar; workers only note that they reach it.
    """

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
    direct_seconds: Mapped[float] = mapped_column(server_default=ZERO)  # of requests that are not jobs
    interactive_seconds: Mapped[float] = mapped_column(server_default=ZERO)  # of those, of requests over HTTP: billed
    prompt_tokens: Mapped[Big] = mapped_column(server_default=ZERO)
    cached_tokens: Mapped[Big] = mapped_column(server_default=ZERO)
    output_tokens: Mapped[Big] = mapped_column(server_default=ZERO)
    engine_name: Mapped[str] = mapped_column(server_default=EMPTY)  # the same after a restart
    machine: Mapped[str] = mapped_column(server_default=EMPTY)
    devices: Mapped[list[str]] = mapped_column(server_default=sql("'{}'::text[]"))  # UUIDs of GPUs; none on a CPU
    address: Mapped[str] = mapped_column(server_default=EMPTY)
    capacity: Mapped[int] = mapped_column(server_default=ZERO)  # most sequences at once
    model_name: Mapped[str] = mapped_column(server_default=EMPTY)  # that jobs ask for
    adapters: Mapped[dict[str, Any]] = mapped_column(server_default=sql("'{}'"))  # `RegisteredAdapter`s by their names
    state: Mapped[str] = mapped_column(server_default=sql("'ready'"))
    ready_at: Mapped[datetime | None]
    end_reason: Mapped[str | None]  # of `EndReason`
    billed_seconds: Mapped[float] = mapped_column(server_default=ZERO)  # of attempts that ended in closed hours
    worker_heartbeat_at: Mapped[datetime | None]  # when a worker last reached it; NULL: none has
    declared: Mapped[bool] = mapped_column(
        server_default=sql("false")
    )  # another's server: GPUs and seconds are not measured
    # As of the last heartbeat; NULL: not known, as while it loads, or of the memory of another's server.
    running_sequences: Mapped[int | None]
    waiting_sequences: Mapped[int | None]
    kv_used: Mapped[float | None]  # a share of the blocks
    memory_used: Mapped[Big | None]  # bytes of its devices, or of its process on a CPU
    memory_total: Mapped[Big | None]

    __table_args__ = (
        one_of("state", EngineState),
        Index("ix_engine_session_heartbeat_at", "heartbeat_at"),
    )


class ModelAliasRow(Base):
    """A name that jobs may ask for instead of a model's; operators point it at another model."""

    __tablename__ = "model_alias"

    alias: Mapped[str] = mapped_column(primary_key=True)
    model_name: Mapped[str]
    changed_at: Mapped[datetime] = mapped_column(server_default=NOW)


class ApiKeyRow(Base):
    """A key of the HTTP API: whose it is, what it may do, and its limits. NULL: no limit."""

    __tablename__ = "api_key"

    id: Mapped[str] = mapped_column(primary_key=True)  # how the key begins
    hash: Mapped[bytes]  # of the whole key
    tenant: Mapped[str]
    name: Mapped[str] = mapped_column(server_default=EMPTY)
    scopes: Mapped[list[str]]
    requests_per_minute: Mapped[int | None]
    tokens_per_minute: Mapped[Big | None]
    concurrent_requests: Mapped[int | None]
    interactive_seconds_per_day: Mapped[float | None]
    created_at: Mapped[datetime] = mapped_column(server_default=NOW)
    expires_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]

    __table_args__ = (
        CheckConstraint(
            "cardinality(scopes) > 0 AND scopes <@ ARRAY['chat', 'jobs', 'read', 'review', 'admin']", name="scopes"
        ),
        CheckConstraint(
            "least(requests_per_minute, tokens_per_minute, concurrent_requests, interactive_seconds_per_day) > 0",
            name="limits",
        ),
    )


class BatchRow(Base):
    """The jobs of one call that asked for a webhook, or for a batch. Those of a follow-up belong to it, too."""

    __tablename__ = "batch"

    id: Mapped[UUID] = mapped_column(primary_key=True)  # UUIDv7, made by the producer
    tenant: Mapped[str]
    url: Mapped[str | None]
    notify: Mapped[str]
    jobs: Mapped[int]  # that the call enqueued
    created_at: Mapped[datetime] = mapped_column(server_default=NOW)
    ended_at: Mapped[datetime | None]  # when no job of it was open for the first time

    __table_args__ = (
        one_of("notify", Notify),
        CheckConstraint("url ~ '^https?://[^/?#]+' AND length(url) <= 2000", name="url"),
        Index("ix_batch_tenant", "tenant", "id"),
        Index("ix_batch_open", "id", postgresql_where=sql("ended_at IS NULL")),
    )


class WebhookDeliveryRow(Base):
    """A message to be sent to a webhook, until it is delivered or dead."""

    __tablename__ = "webhook_delivery"

    id: Mapped[UUID] = mapped_column(primary_key=True, server_default=func.gen_random_uuid())  # the message's id
    batch_id: Mapped[UUID]
    tenant: Mapped[str]
    url: Mapped[str]
    origin: Mapped[str]  # scheme, host and port: receivers do not wait for each other
    payload: Mapped[dict[str, Any]]
    attempts: Mapped[int] = mapped_column(server_default=ZERO)
    next_attempt_at: Mapped[datetime] = mapped_column(server_default=NOW)
    retry_until: Mapped[datetime] = mapped_column(server_default=sql("now() + interval '1 day'"))
    created_at: Mapped[datetime] = mapped_column(server_default=NOW)
    delivered_at: Mapped[datetime | None]
    dead_at: Mapped[datetime | None]
    status: Mapped[int | None]  # of the last answer
    error: Mapped[str | None]  # of the last attempt

    __table_args__ = (
        CheckConstraint("num_nonnulls(delivered_at, dead_at) <= 1", name="ended"),
        Index("ix_webhook_delivery_waiting", "origin", "next_attempt_at", postgresql_where=sql(UNDELIVERED)),
        Index("ix_webhook_delivery_created_at", "created_at"),
    )


class StoredFileRow(Base):
    """A file of OpenAI's API. Larger ones lie in a folder, under the name of their id."""

    __tablename__ = "stored_file"

    id: Mapped[UUID] = mapped_column(primary_key=True)  # UUIDv7; of a batch's results, made from its id
    tenant: Mapped[str]
    purpose: Mapped[str]
    name: Mapped[str]
    size: Mapped[Big]  # in bytes
    created_at: Mapped[datetime] = mapped_column(server_default=NOW)
    expires_at: Mapped[datetime | None]
    deleted_at: Mapped[datetime | None]  # it is gone for its tenant, but a batch may still read it
    content: Mapped[bytes | None]  # NULL: it lies in the folder

    __table_args__ = (
        one_of("purpose", FilePurpose),
        Index("ix_stored_file_tenant", "tenant", "id", postgresql_where=sql("deleted_at IS NULL")),
        Index(
            "ix_stored_file_end",
            sql("least(expires_at, deleted_at)"),
            postgresql_where=sql("least(expires_at, deleted_at) IS NOT NULL"),
        ),
    )


class ApiBatchRow(Base):
    """A batch of OpenAI's API. Its jobs have its id as that of their batch, and their line in their idempotency key."""

    __tablename__ = "api_batch"

    id: Mapped[UUID] = mapped_column(primary_key=True)  # UUIDv7
    tenant: Mapped[str]
    endpoint: Mapped[str]
    status: Mapped[str] = mapped_column(server_default="validating")
    input_file_id: Mapped[UUID]
    metadata_: Mapped[dict[str, Any] | None] = mapped_column("metadata")
    output_seconds: Mapped[int | None]  # for which its results are kept; NULL: until they are deleted
    created_at: Mapped[datetime] = mapped_column(server_default=NOW)
    expires_at: Mapped[datetime] = mapped_column(server_default=sql("now() + interval '1 day'"))
    in_progress_at: Mapped[datetime | None]
    finalizing_at: Mapped[datetime | None]
    completed_at: Mapped[datetime | None]
    failed_at: Mapped[datetime | None]
    expired_at: Mapped[datetime | None]
    cancelling_at: Mapped[datetime | None]
    cancelled_at: Mapped[datetime | None]
    lines: Mapped[int] = mapped_column(server_default=ZERO)  # of the input, blank ones among them
    requests: Mapped[int] = mapped_column(server_default=ZERO)
    enqueued: Mapped[int] = mapped_column(server_default=ZERO)  # lines whose jobs are enqueued
    completed: Mapped[int] = mapped_column(server_default=ZERO)  # requests, once it has ended
    failed: Mapped[int] = mapped_column(server_default=ZERO)
    output_file_id: Mapped[UUID | None]
    error_file_id: Mapped[UUID | None]
    errors: Mapped[dict[str, Any] | None]  # of the input, as the API shows them
    model: Mapped[str | None]  # if it is the same for all requests
    usage: Mapped[dict[str, Any] | None]
    idempotency_key: Mapped[str | None]

    __table_args__ = (
        one_of("status", BatchStatus),
        UniqueConstraint("tenant", "idempotency_key"),
        Index("ix_api_batch_tenant", "tenant", "id"),
        Index("ix_api_batch_open", "id", postgresql_where=sql(OPEN_BATCH)),
    )


class QueueControlRow(Base):
    """Whether an operator has paused the queue. One row, `default`."""

    __tablename__ = "queue_control"

    name: Mapped[str] = mapped_column(primary_key=True)
    paused: Mapped[bool] = mapped_column(server_default=sql("false"))
    changed_at: Mapped[datetime] = mapped_column(server_default=NOW)
    note: Mapped[str | None]


class QueuePauseRow(Base):
    """A kind, tenant or model whose jobs an operator holds back, or an engine that gets no new ones."""

    __tablename__ = "queue_pause"

    scope: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(primary_key=True)
    paused_at: Mapped[datetime] = mapped_column(server_default=NOW)
    paused_by: Mapped[str]
    note: Mapped[str | None]

    __table_args__ = (CheckConstraint("scope IN ('kind', 'tenant', 'model', 'engine')", name="scope"),)


class ForecastRow(Base):
    """A forecast of the time until the open jobs were done, and the actual outcome."""

    __tablename__ = "forecast"

    made_at: Mapped[datetime] = mapped_column(primary_key=True)
    began_at: Mapped[datetime]  # since when the queue had not been empty: the drain's name
    open_jobs: Mapped[Big]
    p50_seconds: Mapped[float]
    p90_seconds: Mapped[float]
    late_jobs: Mapped[Big]  # that were expected to miss their deadline
    arrived: Mapped[Big] = mapped_column(server_default=ZERO)  # jobs, until `ended_at`
    disturbed: Mapped[bool] = mapped_column(server_default=sql("false"))  # the queue was paused meanwhile
    ended_at: Mapped[datetime | None]  # when the last of the jobs that stood ended

    __table_args__ = (Index("ix_forecast_open", "made_at", postgresql_where=sql("ended_at IS NULL")),)


class ForecastStateRow(Base):
    """What was learnt of costs and rates, and the latest forecast. One row, `default`."""

    __tablename__ = "forecast_state"

    name: Mapped[str] = mapped_column(primary_key=True)
    learnt: Mapped[dict[str, Any]]
    latest: Mapped[dict[str, Any]]
    changed_at: Mapped[datetime] = mapped_column(server_default=NOW)
