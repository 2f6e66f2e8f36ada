"""The errors that the service raises deliberately. Each message is one line and contains no secrets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, Self
from uuid import UUID

UNSTORABLE_CLASSES: Final = ("22", "23", "54")  # SQLSTATE: malformed data, violated constraints, size limits


class ThothyError(Exception):
    """Base class of the service's errors. The message is one line that an operator can act on."""


class ConfigError(ThothyError):
    """A setting is missing or malformed, or the machine lacks something that the configuration asks for."""


class NotConnectedError(ConfigError):
    """Nothing says where a service is: its setting is missing, and no embedded stack is running."""


class AdapterNameError(ConfigError):
    """An adapter cannot have this name: a model, an alias or an adapter of another model has it."""


class PastExpiryError(ConfigError):
    """A new key of the HTTP API would have expired already."""


class EntryError(ThothyError):
    """A job that cannot be enqueued. `entry` is its index in `enqueue_many`, from 0; None if it was enqueued alone."""

    def __init__(self, message: str) -> None:
        self.entry: int | None = None
        self.place: str | None = None  # how the message names the entry
        super().__init__(message)

    def at(self, entry: int | None, place: str | None = None) -> Self:
        """This error, naming its entry, by default as "entry 17"."""
        self.entry = entry
        self.place = f"entry {entry}" if place is None and entry is not None else place
        return self

    def __str__(self) -> str:
        message = super().__str__()
        return f"{self.place}: {message}" if self.place else message


class InvalidJobError(EntryError):
    """A job whose request or options are invalid. `field` names the invalid field or option."""

    def __init__(self, field: str, message: str) -> None:
        self.field = field
        self.message = message
        super().__init__(f"{field}: {message}")


class IdempotencyConflictError(EntryError):
    """An idempotency key that already belongs to a different request.

    The different request is that of the job `job_id`, or that of the entry `other` of the same call.
    """

    def __init__(self, key: str, *, job_id: UUID | None = None, other: int | None = None) -> None:
        self.key = key
        self.job_id = job_id
        self.other = other
        self.other_place = f"job {job_id}" if other is None else f"entry {other}"
        super().__init__(f"idempotency key {key!r} already belongs to a different request")

    def __str__(self) -> str:
        known = self.job_id is not None or self.other is not None
        return f"{super().__str__()}, that of {self.other_place}" if known else super().__str__()


class InvalidConnectionError(ThothyError):
    """The object given as `connection` has no transaction in which jobs can be enqueued."""

    def __init__(self, message: str) -> None:
        super().__init__(f"connection: {message}")


class UnknownJobError(ThothyError):
    """No job has this id."""

    def __init__(self, job_id: UUID | str) -> None:
        self.job_id = job_id
        super().__init__(f"no job with id {job_id}")


class AmbiguousIdError(ThothyError):
    """The ids of several jobs begin or end with this text. `candidates` are some of them."""

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
    """The job was cancelled before it had an artifact."""


class JobExpiredError(JobEndedError):
    """The job's deadline passed before it finished."""


class NeedsEditError(JobEndedError):
    """Gates rejected every draft of the job's artifact: a person must edit the best one, or approve their edit of it.

    `draft` has the fields of the best draft, some of which may be missing; `findings` say what is wrong, and where.
    `state` is the state of the review. `reason` is that of the last attempt; None once a person has edited the draft.
    """

    def __init__(
        self,
        job_id: UUID,
        state: str,
        reason: str | None,
        detail: str | None,
        draft: Mapping[str, Any],
        findings: Sequence[Mapping[str, Any]],
    ) -> None:
        self.draft = draft
        self.findings = findings
        super().__init__(job_id, state, reason, detail)


class ArtifactRejectedError(JobEndedError):
    """A person rejected the job's artifact, or the text that it follows up has changed: `detail` says more."""


class InvalidDecisionError(ThothyError):
    """A decision that is invalid in itself. `field` names the invalid field."""

    def __init__(self, field: str, message: str) -> None:
        self.field = field
        self.message = message
        super().__init__(f"{field}: {message}")


class DecisionConflictError(ThothyError):
    """Somebody else has already decided on this version of a job's artifact: `by` says who, `at` when."""

    def __init__(self, job_id: UUID, version: int, action: str, by: str, at: datetime) -> None:
        self.job_id = job_id
        self.version = version
        self.action = action
        self.by = by
        self.at = at
        when = at.astimezone(UTC).isoformat(" ", "seconds")
        what = action.replace("_", " ")
        super().__init__(f"version {version} of job {job_id} is decided: {by} chose to {what} at {when}")


class NothingToDecideError(ThothyError):
    """The job has no artifact that a person could decide on: it has not ended, or has not succeeded."""

    def __init__(self, job_id: UUID, state: str) -> None:
        self.job_id = job_id
        self.state = state
        super().__init__(f"job {job_id} is {state}: only the artifact of a job that succeeded can be decided on")


class ResultTimeoutError(ThothyError, TimeoutError):
    """The job did not finish within `timeout` seconds of waiting. The job itself is unaffected."""

    def __init__(self, job_id: UUID, state: str | None, timeout: float) -> None:
        self.job_id = job_id
        self.state = state  # None: the database did not answer in time
        found = "is in an unknown state" if state is None else f"is still {state}"
        super().__init__(f"job {job_id} {found} after {timeout:g} s")


class WaitTimeoutError(ThothyError, TimeoutError):
    """Not all jobs ended within `timeout` seconds of waiting. `open` are the jobs still open; they are unaffected."""

    SHOWN = 3

    def __init__(self, open_jobs: Sequence[UUID], total: int, timeout: float) -> None:
        self.open = tuple(open_jobs)
        names = ", ".join(map(str, self.open[: self.SHOWN])) + (", …" if len(self.open) > self.SHOWN else "")
        super().__init__(f"{len(self.open):,} of {total:,} jobs have not ended after {timeout:g} s: {names}")


class WebhookVerificationError(ThothyError):
    """The message was not signed with this secret, or its time is too far from now. Answer it with 400."""


class UnreadableArtifactError(ThothyError):
    """This version cannot read the artifact: its kind is unknown here, or the kind's schema has changed."""

    def __init__(self, job_id: UUID, message: str) -> None:
        self.job_id = job_id
        super().__init__(f"the artifact of job {job_id} cannot be read: {message}")


class DatabaseError(ThothyError):
    """Postgres rejected or aborted a statement. `sqlstate` is the five-character code, None if the server sent none."""

    def __init__(self, message: str, sqlstate: str | None = None) -> None:
        self.sqlstate = sqlstate
        super().__init__(message)

    @property
    def is_unstorable(self) -> bool:
        """Whether the data itself is at fault, so that another try would fail as well."""
        return self.sqlstate is not None and self.sqlstate.startswith(UNSTORABLE_CLASSES)


class DatabaseUnreachableError(DatabaseError):
    """Postgres cannot be reached at the configured host and port, refuses the login, is read-only, or is full."""

    def __init__(self, message: str, sqlstate: str | None = None, advice: str | None = None) -> None:
        self.advice = advice  # None: the only remedy is to start it
        super().__init__(message, sqlstate)


class PoolerError(DatabaseError, ConfigError):
    """Postgres is behind a pooler that keeps no sessions: neither locks, notifications nor a search path."""

    def __init__(self, found: str) -> None:
        super().__init__(
            f"{found}; set THOTHY_DATABASE_URL to the address of Postgres itself, and unset THOTHY_DATABASE_POOLER"
            " (all processes can work behind a pooler in session mode, with THOTHY_DATABASE_POOLER=session; only"
            " producers behind one in transaction mode, with THOTHY_DATABASE_POOLER=transaction)"
        )


class PermissionDeniedError(DatabaseError):
    """The database role lacks a right, or belongs to a different tenant from the one in the settings."""

    ADVICE: Final = {
        "row-level security": "THOTHY_TENANT is {tenant!r}: set it to the tenant of the role",
        "FATAL": "let the owner of the database run GRANT CONNECT ON DATABASE",  # raised while connecting
        "create role": "run the command as a role with CREATEROLE",
        "for database": "let its owner run GRANT CREATE ON DATABASE, or CREATE SCHEMA … AUTHORIZATION that role",
    }
    OTHERWISE: Final = (
        "run the service as the owner of the tables, or as a member of that role; a tenant's producers need a role of"
        " `thothy roles create`"
    )

    def __init__(self, message: str, tenant: str, sqlstate: str | None = None) -> None:
        self.tenant = tenant
        advice = next((advice for part, advice in self.ADVICE.items() if part in message), self.OTHERWISE)
        self.problem, self.advice = f"the database role lacks a right: {message}", advice.format(tenant=tenant)
        super().__init__(f"{self.problem}; {self.advice}", sqlstate)


class RoleExistsError(DatabaseError):
    """Postgres has a role of this name already. Roles belong to the whole server, not to a database or a schema."""


class BrokerUnreachableError(ThothyError):
    """Redis cannot be reached at the configured host and port, or accepts no writes."""

    def __init__(self, message: str, advice: str | None = None) -> None:
        self.problem, self.advice = message, advice
        super().__init__(message)


class BrokerRefusedError(BrokerUnreachableError):
    """Redis answers but cannot be used: it is in cluster mode, or its user lacks rights."""

    def __init__(self, problem: str, advice: str) -> None:
        super().__init__(f"{problem}; {advice}", advice)
        self.problem = problem


class MigrationsBehindError(DatabaseError):
    """The database schema is older than this code. `found` is its revision, None if it has none or it is unknown."""

    def __init__(self, found: str | None, required: str, sqlstate: str | None = None, *, schema: str = "") -> None:
        self.found = found
        self.required = required
        self._where = f"schema {schema} (THOTHY_DATABASE_SCHEMA)" if schema else "the database"
        super().__init__(f"{self.problem}: {self.advice}", sqlstate)

    @property
    def problem(self) -> str:
        """What is missing, and what is there."""
        there = f"is at revision {self.found}" if self.found else "lacks tables or columns"
        return f"{self._where} {there}; this version requires {self.required}"

    @property
    def advice(self) -> str:
        return "run `thothy migrate`"


class NotInstalledError(MigrationsBehindError):
    """The schema in the settings holds no installation. `others` are the schemas of the database that hold one."""

    def __init__(self, schema: str, others: Sequence[str], required: str) -> None:
        self.schema = schema
        self.others = tuple(others)
        super().__init__(None, required)

    @property
    def problem(self) -> str:
        """What is missing, and what is there."""
        there = f"; {' or '.join(self.others)} has them" if self.others else ""
        return f"schema {self.schema} (THOTHY_DATABASE_SCHEMA) has no tables of Thothy{there}"

    @property
    def advice(self) -> str:
        wrong = "correct the setting, or for another installation " if self.others else ""
        return f"{wrong}run `thothy migrate`"


class CodeBehindError(ThothyError):
    """The database was migrated by a newer version of the service."""

    def __init__(self, found: str, newest: str) -> None:
        self.found = found
        self.newest = newest
        self.problem = f"the database is at revision {found}; this version knows up to {newest}"
        self.advice = "upgrade Thothy AI"
        super().__init__(f"{self.problem}: {self.advice}")


class ServiceStartError(ThothyError):
    """A server or process of the embedded stack did not start, or did not stay up."""


class StackRunningError(ThothyError):
    """Another embedded stack is already running in this home directory."""
