"""What a job's row says, and what that means to whoever waits for it. Pure."""

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
from thothy_ai.jobs.registry import UnknownKindError

MIN_PAUSE = 0.05  # seconds between two looks at a job
MAX_PAUSE = 1.0
GROWTH = 1.3

ENDED: Mapping[JobState, type[JobEndedError]] = {
    JobState.DEAD: JobFailedError,
    JobState.CANCELLED: JobCancelledError,
    JobState.EXPIRED: JobExpiredError,
}


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Where a job was when it was looked at."""

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
        """From a row of the statement `job_snapshot`. Raises `UnknownJobError` when there is none."""
        if row is None:
            raise UnknownJobError(job_id)
        values: dict[str, Any] = {str(name): value for name, value in row.items()}
        return cls(**{**values, "state": JobState(row["state"])})

    def succeeded(self) -> bool:
        """Whether it has an artifact; False while it may still get one. Raises what it ended with otherwise."""
        if self.state in ENDED:
            raise ENDED[self.state](self.id, self.state, self.reason, self.detail)
        return self.state is JobState.SUCCEEDED


def read_artifact(snapshot: Snapshot, body: object) -> Artifact:
    """The artifact as its kind's type, without fields that only newer code knows. Raises `UnreadableArtifactError`."""
    try:
        artifact: Artifact = registry.find(snapshot.kind).artifact.model_validate(body, extra="ignore")
    except UnknownKindError as error:
        raise UnreadableArtifactError(snapshot.id, str(error)) from None
    except ValidationError as error:
        raise UnreadableArtifactError(snapshot.id, str(error).splitlines()[0]) from None
    return artifact


def parse_id(job_id: UUID | str) -> UUID:
    """A job's id. Raises `InvalidJobError` when the text is none."""
    try:
        return job_id if isinstance(job_id, UUID) else UUID(job_id)
    except ValueError:
        raise InvalidJobError("id", f"{job_id!r} is not a job id") from None


class Patience:
    """How long to wait between two looks at a job, until the time to wait for it has run out."""

    def __init__(self, job_id: UUID, timeout: float | None) -> None:
        self._job_id = job_id
        self._timeout = timeout
        self._until = None if timeout is None else time.monotonic() + timeout
        self._pauses = _pauses()

    def pause(self, state: JobState) -> float:
        """Seconds until the next look. Raises `ResultTimeoutError` when there is no time for one."""
        left = None if self._until is None else self._until - time.monotonic()
        if left is not None and left <= 0:
            raise ResultTimeoutError(self._job_id, state, self._timeout or 0)
        return min(next(self._pauses), left) if left is not None else next(self._pauses)


def _pauses() -> Iterator[float]:
    pause = MIN_PAUSE
    while True:
        yield pause
        pause = min(pause * GROWTH, MAX_PAUSE)
