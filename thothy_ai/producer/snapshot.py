"""A job's row as a `Snapshot`, the errors it translates to, and the polling schedule of `result`. No I/O."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from pydantic import ValidationError
from sqlalchemy import RowMapping

from thothy_ai.db.states import JobState, ReviewState
from thothy_ai.errors import (
    ArtifactRejectedError,
    InvalidJobError,
    JobCancelledError,
    JobEndedError,
    JobExpiredError,
    JobFailedError,
    NeedsEditError,
    UnknownJobError,
    UnreadableArtifactError,
)
from thothy_ai.jobs import Artifact, registry
from thothy_ai.jobs.problems import first_problem
from thothy_ai.jobs.registry import UnknownKindError

MIN_DELAY = 0.05  # seconds between two polls of a job
MAX_DELAY = 1.0
DELAY_GROWTH = 1.3
GRACE_SECONDS = 0.7  # after the timeout, for a last look
LISTENING_DELAY = 5.0  # while a connection listens, in case a notification is lost

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
    review: ReviewState | None = None  # of a succeeded job: a person's task or decision

    @classmethod
    def of(cls, row: RowMapping | None, job_id: UUID) -> Snapshot:
        """Convert a row of the statement `producer/snapshot`. Raises `UnknownJobError` if there is no row."""
        if row is None:
            raise UnknownJobError(job_id)
        values: dict[str, Any] = {str(name): value for name, value in row.items()}
        review = ReviewState(row["review"]) if row["review"] else None
        return cls(**{**values, "state": JobState(row["state"]), "review": review})

    def succeeded(self) -> bool:
        """Whether the job succeeded; False while it is open. Raises a `JobEndedError` if it ended otherwise."""
        if error := self.error():
            raise error
        return self.state is JobState.SUCCEEDED

    def error(self) -> JobEndedError | None:
        """The error of a job that ended without an artifact, or whose artifact was rejected or superseded."""
        if self.review in {ReviewState.REJECTED, ReviewState.SUPERSEDED}:
            return ArtifactRejectedError(self.id, self.review, None, self.detail)
        return ENDED[self.state](self.id, self.state, self.reason, self.detail) if self.state in ENDED else None


def read_artifact(snapshot: Snapshot, row: Mapping[Any, Any] | None) -> Artifact:
    """The artifact in a row of `producer/artifacts`, without fields that only newer versions know.

    Raises `NeedsEditError`, and `UnreadableArtifactError`.
    """
    if row is not None and row["body"] is None and row["draft"] is not None:
        review, reason, detail = ReviewState.NEEDS_EDIT, snapshot.reason, snapshot.detail
        if row["edited"]:  # the rejected text is no longer current
            review = snapshot.review or review
            reason, detail = None, f"version {row['edited']} waits for a decision"
        raise NeedsEditError(snapshot.id, review, reason, detail, row["draft"], row["findings"])
    try:
        body = row["body"] if row is not None else None
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
    """The delays between polls, growing from `MIN_DELAY` to `MAX_DELAY` until the timeout. A negative timeout is 0.

    While a connection listens for jobs' ends, they are `LISTENING_DELAY`.
    """

    def __init__(self, timeout: float | None) -> None:
        self.timeout = max(0.0, timeout or 0.0)
        self._until = None if timeout is None else time.monotonic() + self.timeout
        self._delay = MIN_DELAY

    @property
    def limit(self) -> float | None:
        """Seconds that all statements may take from now on, so that the timeout is kept even by a server that hangs."""
        return None if self._until is None else self._until - time.monotonic() + GRACE_SECONDS

    @property
    def is_over(self) -> bool:
        """Whether the timeout has passed."""
        return self._until is not None and time.monotonic() >= self._until

    def next_delay(self, *, listening: bool = False) -> float | None:
        """Seconds until the next poll; None once the timeout has passed."""
        left = math.inf if self._until is None else self._until - time.monotonic()
        if left <= 0:
            return None
        delay = LISTENING_DELAY
        if not listening:
            delay, self._delay = self._delay, min(self._delay * DELAY_GROWTH, MAX_DELAY)
        return min(delay, left)
