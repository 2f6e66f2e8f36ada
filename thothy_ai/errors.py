"""Every error the service raises on purpose: one clear line each, no secrets in it."""

from __future__ import annotations

from uuid import UUID


class ThothyError(Exception):
    """Base of the service's errors. Its text is one line that a person can act on."""


class ConfigError(ThothyError):
    """A setting is missing or malformed, or the machine lacks a part that was asked for."""


class InvalidJobError(ThothyError):
    """A job that cannot be enqueued. `field` names what is wrong with it."""

    def __init__(self, field: str, message: str) -> None:
        self.field = field
        self.message = message
        super().__init__(f"{field}: {message}")


class IdempotencyConflictError(ThothyError):
    """An idempotency key that already belongs to another request."""

    def __init__(self, key: str) -> None:
        self.key = key
        super().__init__(f"idempotency key {key!r} already belongs to a different request")


class UnknownJobError(ThothyError):
    """No job has this id."""

    def __init__(self, job_id: UUID | str) -> None:
        self.job_id = job_id
        super().__init__(f"no job {job_id}")


class NotDeadError(ThothyError):
    """A job that is asked for among the dead, and is not."""

    def __init__(self, job_id: UUID, state: str) -> None:
        self.job_id = job_id
        self.state = state
        super().__init__(f"job {job_id} is not dead: it is {state}")


class JobEndedError(ThothyError):
    """A job that ended without an artifact. `state` is where it ended, `reason` why."""

    def __init__(self, job_id: UUID, state: str, reason: str | None = None, detail: str | None = None) -> None:
        self.job_id = job_id
        self.state = state
        self.reason = reason
        self.detail = detail
        why = ": ".join(part for part in (reason, detail) if part)
        super().__init__(f"job {job_id} is {state}" + (f" ({why})" if why else ""))


class JobFailedError(JobEndedError):
    """The job is dead: its attempts are used up, or it can never succeed."""


class JobCancelledError(JobEndedError):
    """The job was cancelled."""


class JobExpiredError(JobEndedError):
    """The job's deadline passed before it finished."""


class ResultTimeoutError(ThothyError, TimeoutError):
    """The job was not finished within the time given to wait for it; it goes on."""

    def __init__(self, job_id: UUID, state: str, timeout: float) -> None:
        self.job_id = job_id
        self.state = state
        super().__init__(f"job {job_id} is still {state} after {timeout:g} s")


class UnreadableArtifactError(ThothyError):
    """An artifact that this code cannot read: its kind is unknown here, or has changed since."""

    def __init__(self, job_id: UUID, message: str) -> None:
        self.job_id = job_id
        super().__init__(f"the artifact of job {job_id} cannot be read: {message}")


class DatabaseError(ThothyError):
    """Postgres refused or broke off a statement. `sqlstate`: its five-letter code, None when it gave none."""

    def __init__(self, message: str, sqlstate: str | None = None) -> None:
        self.sqlstate = sqlstate
        super().__init__(message)


class DatabaseUnreachableError(DatabaseError):
    """Postgres cannot be reached at the configured host and port, or takes no writes there."""


class BrokerUnreachableError(ThothyError):
    """Redis cannot be reached at the configured host and port."""


class MigrationsBehindError(DatabaseError):
    """The database's schema is older than this code. `found`: its revision, None when it has none or is not known."""

    def __init__(self, found: str | None, wanted: str, sqlstate: str | None = None) -> None:
        self.found = found
        self.wanted = wanted
        has = f"is at revision {found}" if found else "lacks tables or columns"
        super().__init__(f"the database {has}, the code needs {wanted}: run `thothy migrate`", sqlstate)


class CodeBehindError(ThothyError):
    """The database was migrated by newer code than this."""

    def __init__(self, found: str, wanted: str) -> None:
        self.found = found
        self.wanted = wanted
        super().__init__(f"the database is at revision {found}, this code knows up to {wanted}: update the code")


class ServiceStartError(ThothyError):
    """A server or a process of the embedded stack did not start, or would not stay up."""


class StackRunningError(ThothyError):
    """Another stack already runs in this home."""
