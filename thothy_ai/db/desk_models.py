"""The tables of the desk and the console: decisions, what people wrote, briefs, sign-in, and the audit log."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import CheckConstraint, ForeignKey, Index, func
from sqlalchemy import text as sql
from sqlalchemy.orm import Mapped, mapped_column

from thothy_ai.db.base import Base, one_of
from thothy_ai.db.states import Action

NOW = func.now()


class DecisionRow(Base):
    """A person's decision on a version of a job's artifact. The row is deleted with its job."""

    __tablename__ = "decision"

    job_id: Mapped[UUID] = mapped_column(ForeignKey("job.id", ondelete="CASCADE"), primary_key=True)
    decided_at: Mapped[datetime] = mapped_column(primary_key=True, server_default=func.clock_timestamp())
    version: Mapped[int]
    attempt: Mapped[int]  # the job's last attempt at that time
    tenant: Mapped[str]
    action: Mapped[str]
    decided_by: Mapped[str]  # the name of a person, or the id of a key
    note: Mapped[str | None]
    voice: Mapped[str | None]  # the voice that the artifact is an example of
    locale: Mapped[str | None]  # the example's locale
    example: Mapped[str | None]  # the example's text

    __table_args__ = (
        one_of("action", Action),
        Index("ix_decision_decided_at", "decided_at"),
        Index("ix_decision_voice", "tenant", "voice", "decided_at", postgresql_where=sql("example IS NOT NULL")),
    )


class ArtifactVersionRow(Base):
    """A version of a job's artifact that a person wrote. The row is deleted with its job."""

    __tablename__ = "artifact_version"

    job_id: Mapped[UUID] = mapped_column(ForeignKey("job.id", ondelete="CASCADE"), primary_key=True)
    version: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    tenant: Mapped[str]
    body: Mapped[dict[str, Any]]
    problem: Mapped[str | None]  # the field and why it breaks the schema: a draft, which cannot be approved
    findings: Mapped[list[dict[str, Any]]] = mapped_column(server_default=sql("'[]'"))
    edited_by: Mapped[str]

    __table_args__ = (CheckConstraint("version > 1", name="version"),)


class BriefRow(Base):
    """A version of a stored brief, which never changes. Without a body, it says that the brief was removed."""

    __tablename__ = "brief"

    tenant: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(primary_key=True)
    version: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    body: Mapped[dict[str, Any] | None]
    saved_by: Mapped[str]
    saved_at: Mapped[datetime] = mapped_column(server_default=NOW)

    __table_args__ = (CheckConstraint("version > 0", name="version"),)


class MeasuredVerifierRow(Base):
    """How many doubts of a verifier were right and how many were wrong in its latest measurement."""

    __tablename__ = "measured_verifier"

    name: Mapped[str] = mapped_column(primary_key=True)
    weights: Mapped[str] = mapped_column(primary_key=True)  # a digest, since names are not unique
    found: Mapped[int]
    false_alarms: Mapped[int]
    measured_at: Mapped[datetime] = mapped_column(server_default=NOW)


class ReviewDraftRow(Base):
    """Who is viewing an artifact in the console, in which session, and their unsaved texts."""

    __tablename__ = "review_draft"

    job_id: Mapped[UUID] = mapped_column(ForeignKey("job.id", ondelete="CASCADE"), primary_key=True)
    session: Mapped[UUID] = mapped_column(primary_key=True)
    viewer: Mapped[str]
    name: Mapped[str]
    version: Mapped[int]  # the version that the texts edit
    seen_at: Mapped[datetime] = mapped_column(server_default=NOW)
    texts: Mapped[dict[str, Any] | None]  # by their fields, and notes


class ConsoleSecretRow(Base):
    """The secret that signs the console's sessions."""

    __tablename__ = "console_secret"

    one: Mapped[bool] = mapped_column(primary_key=True, server_default=sql("true"))
    secret: Mapped[str]

    __table_args__ = (CheckConstraint("one", name="one"),)


class ConsoleLinkRow(Base):
    """A link to the console that signs in once. `tenant` NULL: of all tenants."""

    __tablename__ = "console_link"

    digest: Mapped[bytes] = mapped_column(primary_key=True)
    name: Mapped[str]
    personal: Mapped[bool]  # a given name, not the account that made the link
    role: Mapped[str]
    tenant: Mapped[str | None]
    expires_at: Mapped[datetime]

    __table_args__ = (CheckConstraint("role IN ('reader', 'editor', 'operator')", name="role"),)


class ConsoleSessionRow(Base):
    """Someone who signed in to the console. `tenant` NULL: of all tenants."""

    __tablename__ = "console_session"

    id: Mapped[UUID] = mapped_column(primary_key=True)
    name: Mapped[str]
    role: Mapped[str]
    tenant: Mapped[str | None]
    key_id: Mapped[str | None]  # of the API key that signed in; NULL: a link
    began_at: Mapped[datetime] = mapped_column(server_default=NOW)
    ended_at: Mapped[datetime | None]  # before its time: by signing out, or by an operator

    __table_args__ = (CheckConstraint("role IN ('reader', 'editor', 'operator')", name="role"),)


class AuditRow(Base):
    """A change that a person made in the console. `tenant` NULL: it affects several tenants."""

    __tablename__ = "audit_log"

    id: Mapped[UUID] = mapped_column(primary_key=True)
    at: Mapped[datetime] = mapped_column(server_default=NOW)
    name: Mapped[str]
    tenant: Mapped[str | None]
    action: Mapped[str]
    target: Mapped[str]
    before: Mapped[dict[str, Any] | None]
    after: Mapped[dict[str, Any] | None]
