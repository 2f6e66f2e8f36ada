"""The errors that the service raises deliberately. Each message is one line and contains no secrets."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID


class ThothyError(Exception):
    """Base class of the service's errors. The message is one line that an operator can act on."""


class ConfigError(ThothyError):
    """A setting is missing or malformed, or the machine lacks something that was requested."""


class NotConnectedError(ConfigError):
    """Nothing says where a service is: its setting is missing, and no embedded stack is running."""


class InvalidJobError(ThothyError):
    """A job that cannot be enqueued. `field` names the invalid field or option."""

    def __init__(self, field: str, message: str) -> None:
        self.field = field
        self.message = message
        super().__init__(f"{field}: {message}")


class IdempotencyConflictError(ThothyError):
    """An idempotency key that already belongs to a different request."""

    def __init__(self, key: str) -> None:
        self.key = key
        super().__init__(f"idempotency key {key!r} already belongs to a different request")


class UnknownJobError(ThothyError):
    """No job has this id."""

    def __init__(self, job_id: UUID | str) -> None:
        self.job_id = job_id
        super().__init__(f"no job with id {job_id}")


class AmbiguousIdError(ThothyError):
    """Several jobs' ids begin or end with this text. `candidates` are some of them."""

    def __init__(self, ref: str, candidates: Sequence[UUID], *, more: bool = False) -> None:
        self.ref = ref
        self.candidates = tuple(candidates)
        names = ", ".join(map(str, candidates))
        super().__init__(f"several job ids begin or end with {ref}: {names}{', …' if more else ''}")


class NotDeadError(ThothyError):
    """The job exists but is not dead, so it is not a dead letter."""

    def __init__(self, job_id: UUID, state: str) -> None:
        self.job_id = job_id
        self.state = state
        super().__init__(f"job {job_id} is not dead: its state is {state}")


class JobEndedError(ThothyError):
    """A job that ended without an artifact. `state` is its final state, `reason` a reason code, `detail` free text."""

    def __init__(self, job_id: UUID, state: str, reason: str | None = None, detail: str | None = None) -> None:
        self.job_id = job_id
        self.state = state
        self.reason = reason
        self.detail = detail
        why = ": ".join(part for part in (reason, detail) if part)
        super().__init__(f"job {job_id} is {state}" + (f" ({why})" if why else ""))


class JobFailedError(JobEndedError):
    """The job is dead: it has used up its attempts, or it cannot succeed."""


class JobCancelledError(JobEndedError):
    """The job was cancelled."""


class JobExpiredError(JobEndedError):
    """The job's deadline passed before it finished."""


class ResultTimeoutError(ThothyError, TimeoutError):
    """The job did not finish within `timeout` seconds of waiting. The job itself is unaffected."""

    def __init__(self, job_id: UUID, state: str, timeout: float) -> None:
        self.job_id = job_id
        self.state = state
        super().__init__(f"job {job_id} is still {state} after {timeout:g} s")


class UnreadableArtifactError(ThothyError):
    """An artifact that this version cannot read: its kind is unknown here, or the kind's schema has changed."""

    def __init__(self, job_id: UUID, message: str) -> None:
        self.job_id = job_id
        super().__init__(f"the artifact of job {job_id} cannot be read: {message}")


class DatabaseError(ThothyError):
    """Postgres rejected or aborted a statement. `sqlstate` is the five-character code, None if the server sent none."""

    def __init__(self, message: str, sqlstate: str | None = None) -> None:
        self.sqlstate = sqlstate
        super().__init__(message)


class DatabaseUnreachableError(DatabaseError):
    """Postgres cannot be reached at the configured host and port, or is read-only there."""


class BrokerUnreachableError(ThothyError):
    """Redis cannot be reached at the configured host and port."""


class MigrationsBehindError(DatabaseError):
    """The database schema is older than this code. `found` is its revision, None if it is unknown or there is none."""

    def __init__(self, found: str | None, required: str, sqlstate: str | None = None) -> None:
        self.found = found
        self.required = required
        problem = f"is at revision {found}" if found else "lacks tables or columns"
        super().__init__(f"the database {problem}; this version requires {required}: run `thothy migrate`", sqlstate)


class CodeBehindError(ThothyError):
    """The database was migrated by a newer version than this one."""

    def __init__(self, found: str, newest: str) -> None:
        self.found = found
        self.newest = newest
        super().__init__(f"the database is at revision {found}; this version knows up to {newest}: upgrade Thothy AI")


class ServiceStartError(ThothyError):
    """A server or process of the embedded stack did not start, or did not stay up."""


class StackRunningError(ThothyError):
    """Another embedded stack is already running in this home directory."""
