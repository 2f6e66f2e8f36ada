"""A job's row as a `Snapshot`, the errors it translates to, and the polling schedule of `result`. No I/O."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from pydantic import ValidationError
from sqlalchemy import RowMapping

from thothy_ai.db.states import JobState
from thothy_ai.errors import (
    InvalidJobError,
    JobCancelledError,
    JobEndedError,
    JobExpiredError,
    JobFailedError,
    ResultTimeoutError,
    UnknownJobError,
    UnreadableArtifactError,
)
from thothy_ai.jobs import Artifact, registry
from thothy_ai.jobs.problems import first_problem
from thothy_ai.jobs.registry import UnknownKindError

MIN_DELAY = 0.05  # seconds between two polls of a job
MAX_DELAY = 1.0
DELAY_GROWTH = 1.3
LISTENING_DELAY = 5.0  # while a connection listens: workers of earlier versions send no notifications

ENDED: Mapping[JobState, type[JobEndedError]] = {
    JobState.DEAD: JobFailedError,
    JobState.CANCELLED: JobCancelledError,
    JobState.EXPIRED: JobExpiredError,
}


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state of a job at the moment it was read."""

    id: UUID
    tenant: str
    kind: str
    state: JobState
    priority: int
    deadline: datetime | None
    attempt: int
    failures: int
    reason: str | None
    detail: str | None
    cancel_requested: bool
    enqueued_at: datetime
    started_at: datetime | None
    finished_at: datetime | None

    @classmethod
    def of(cls, row: RowMapping | None, job_id: UUID) -> Snapshot:
        """Convert a row of the statement `producer/snapshot`. Raises `UnknownJobError` if there is no row."""
        if row is None:
            raise UnknownJobError(job_id)
        values: dict[str, Any] = {str(name): value for name, value in row.items()}
        return cls(**{**values, "state": JobState(row["state"])})

    def succeeded(self) -> bool:
        """Whether the job succeeded; False while it is open. Raises a `JobEndedError` if it ended otherwise."""
        error = self.error()
        if error is not None:
            raise error
        return self.state is JobState.SUCCEEDED

    def error(self) -> JobEndedError | None:
        """The error of a job that ended without an artifact."""
        return ENDED[self.state](self.id, self.state, self.reason, self.detail) if self.state in ENDED else None


def read_artifact(snapshot: Snapshot, body: object) -> Artifact:
    """Parse an artifact, ignoring fields that only newer versions know. Raises `UnreadableArtifactError`."""
    try:
        artifact: Artifact = registry.find(snapshot.kind).artifact.model_validate(body, extra="ignore")
    except UnknownKindError as error:
        raise UnreadableArtifactError(snapshot.id, str(error)) from None
    except ValidationError as error:
        raise UnreadableArtifactError(snapshot.id, ": ".join(filter(None, first_problem(error)))) from None
    return artifact


def parse_id(job_id: UUID | str) -> UUID:
    """Parse a job id. Raises `InvalidJobError` if it is malformed."""
    try:
        return job_id if isinstance(job_id, UUID) else UUID(job_id)
    except ValueError:
        raise InvalidJobError("id", f"{job_id!r} is not a job id") from None


class PollSchedule:
    """The delays between polls of one job, growing from `MIN_DELAY` to `MAX_DELAY` until the timeout.

    While a connection listens for the job's end, they are `LISTENING_DELAY`.
    """

    def __init__(self, job_id: UUID, timeout: float | None) -> None:
        self._job_id = job_id
        self._timeout = not_negative(timeout)
        self._until = None if self._timeout is None else time.monotonic() + self._timeout
        self._delays = poll_delays()

    def next_delay(self, state: JobState, *, listening: bool = False) -> float:
        """Seconds until the next poll. Raises `ResultTimeoutError` once the timeout has passed."""
        left = None if self._until is None else self._until - time.monotonic()
        if left is not None and left <= 0:
            raise ResultTimeoutError(self._job_id, state, self._timeout or 0)
        delay = LISTENING_DELAY if listening else next(self._delays)
        return delay if left is None else min(delay, left)


def not_negative(timeout: float | None) -> float | None:
    """The same timeout, or 0 for a negative one: what is left until a moment that has passed."""
    return None if timeout is None else max(0.0, timeout)


def poll_delays() -> Iterator[float]:
    """Seconds between two polls, growing."""
    delay = MIN_DELAY
    while True:
        yield delay
        delay = min(delay * DELAY_GROWTH, MAX_DELAY)
