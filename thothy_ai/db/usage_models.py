"""The tables of the bill: usage by hour, how far hours are closed, and drains. Written by `queue/books.py`;
and what requests over HTTP used, written by doors."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from sqlalchemy import Index, func
from sqlalchemy import text as sql
from sqlalchemy.orm import Mapped, mapped_column

from thothy_ai.db.base import Base, Big

ZERO = sql("0")


class UsageByHourRow(Base):
    """What attempts that ended in an hour used, per tenant, kind, model and adapter; outlives the attempts.

    Seconds are device-seconds: an engine on two GPUs uses two in each second. Rows without a tenant and a kind hold a
    model's residency. Jobs that ended without success have rows without a model.
    """

    __tablename__ = "usage_by_hour"

    hour: Mapped[datetime] = mapped_column(primary_key=True)
    tenant: Mapped[str] = mapped_column(primary_key=True)
    kind: Mapped[str] = mapped_column(primary_key=True)
    model_name: Mapped[str] = mapped_column(primary_key=True)
    adapter: Mapped[str] = mapped_column(primary_key=True, server_default=sql("''"))  # empty: the model itself
    attempts: Mapped[Big] = mapped_column(server_default=ZERO)
    accepted: Mapped[Big] = mapped_column(server_default=ZERO)  # attempts whose artifact was accepted: succeeded jobs
    rejected: Mapped[Big] = mapped_column(server_default=ZERO)  # attempts whose output was rejected
    lost: Mapped[Big] = mapped_column(server_default=ZERO)  # attempts that were lost or released
    dead: Mapped[Big] = mapped_column(server_default=ZERO)  # jobs
    cancelled: Mapped[Big] = mapped_column(server_default=ZERO)
    expired: Mapped[Big] = mapped_column(server_default=ZERO)
    prompt_tokens: Mapped[Big] = mapped_column(server_default=ZERO)
    cached_tokens: Mapped[Big] = mapped_column(server_default=ZERO)
    output_tokens: Mapped[Big] = mapped_column(server_default=ZERO)
    saved_tokens: Mapped[Big] = mapped_column(server_default=ZERO)
    resident_seconds: Mapped[float] = mapped_column(server_default=ZERO)
    busy_seconds: Mapped[float] = mapped_column(server_default=ZERO)
    useful_seconds: Mapped[float] = mapped_column(server_default=ZERO)  # busy seconds of accepted artifacts
    verification_seconds: Mapped[float] = mapped_column(server_default=ZERO)  # busy seconds of verifying models
    requests: Mapped[Big] = mapped_column(server_default=ZERO)  # over HTTP, past the queue
    interactive_seconds: Mapped[float] = mapped_column(server_default=ZERO)  # busy seconds of these requests
    # Of jobs that were deleted, by the hour of their end; of all others, they are read from the jobs themselves.
    with_output: Mapped[Big] = mapped_column(server_default=ZERO)
    with_artifact: Mapped[Big] = mapped_column(server_default=ZERO)  # artifacts that no gate rejects
    clean: Mapped[Big] = mapped_column(server_default=ZERO)  # artifacts without findings
    to_edit: Mapped[Big] = mapped_column(server_default=ZERO)  # succeeded with a draft only
    decided: Mapped[Big] = mapped_column(server_default=ZERO)  # approved or rejected by a person
    approved: Mapped[Big] = mapped_column(server_default=ZERO)
    draft_seconds: Mapped[float] = mapped_column(server_default=ZERO)  # of drafts that waited for a person
    redeemed_seconds: Mapped[float] = mapped_column(server_default=ZERO)  # of drafts that a person approved
    closed_seconds: Mapped[float | None]  # resident and busy seconds when the hour was closed; NULL until then
    revised_at: Mapped[datetime | None]  # last change after closing


class InteractiveUsageRow(Base):
    """What requests over HTTP used in a minute, per engine session, adapter, tenant and key, as one door wrote it.

    Seconds are the engine's, as those of attempts. The key is its id, or empty.
    """

    __tablename__ = "interactive_usage"

    id: Mapped[UUID] = mapped_column(primary_key=True)
    minute: Mapped[datetime]
    engine_session_id: Mapped[UUID]
    adapter: Mapped[str]  # empty: the model itself
    tenant: Mapped[str]
    key: Mapped[str]
    requests: Mapped[Big]
    prompt_tokens: Mapped[Big]
    cached_tokens: Mapped[Big]
    output_tokens: Mapped[Big]
    compute_seconds: Mapped[float]
    useful_seconds: Mapped[float]  # seconds of answered requests

    __table_args__ = (Index("ix_interactive_usage_minute", "minute"),)


class UsageProgressRow(Base):
    """Until when hours are closed: their attempts are summed, and later changes are added. One row,
    `default`; before the first hour is closed, `-infinity`.
    """

    __tablename__ = "usage_progress"

    name: Mapped[str] = mapped_column(primary_key=True)
    closed_until: Mapped[datetime]


class DrainRow(Base):
    """From when the first job of an empty queue was due until the queue was empty again."""

    __tablename__ = "drain"

    started_at: Mapped[datetime] = mapped_column(primary_key=True)
    ended_at: Mapped[datetime]
    emptied: Mapped[bool] = mapped_column(server_default=sql("true"))  # false: cut after a day in which jobs were open
    succeeded: Mapped[Big] = mapped_column(server_default=ZERO)  # jobs
    dead: Mapped[Big] = mapped_column(server_default=ZERO)
    cancelled: Mapped[Big] = mapped_column(server_default=ZERO)
    expired: Mapped[Big] = mapped_column(server_default=ZERO)
    attempts: Mapped[Big] = mapped_column(server_default=ZERO)
    with_output: Mapped[Big] = mapped_column(server_default=ZERO)  # jobs that produced output
    with_artifact: Mapped[Big] = mapped_column(server_default=ZERO)  # jobs with an artifact that no gate is against
    clean: Mapped[Big] = mapped_column(server_default=ZERO)  # jobs with an artifact without findings
    peak_depth: Mapped[Big] = mapped_column(server_default=ZERO)  # most jobs open and due at once
    wait_p50: Mapped[float | None]  # seconds
    wait_p95: Mapped[float | None]
    wait_p99: Mapped[float | None]
    run_p50: Mapped[float | None]
    run_p95: Mapped[float | None]
    run_p99: Mapped[float | None]
    resident_seconds: Mapped[float] = mapped_column(server_default=ZERO)  # device-seconds
    busy_seconds: Mapped[float] = mapped_column(server_default=ZERO)
    useful_seconds: Mapped[float] = mapped_column(server_default=ZERO)
    draft_seconds: Mapped[float] = mapped_column(server_default=ZERO)  # busy seconds of drafts kept for a person
    recorded_at: Mapped[datetime] = mapped_column(server_default=func.now())
