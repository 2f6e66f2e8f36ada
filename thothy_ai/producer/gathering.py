"""Waits for many jobs: chooses which to query, and collects their outcomes. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, cast
from uuid import UUID

from thothy_ai.errors import (
    InvalidJobError,
    JobEndedError,
    NeedsEditError,
    ThothyError,
    UnreadableArtifactError,
    WaitTimeoutError,
)
from thothy_ai.jobs.api.kind import A_co
from thothy_ai.producer.snapshot import PollSchedule, Snapshot, parse_id, read_artifact

LINGER_SECONDS = 0.05  # to collect further notifications: one query serves them all
ARTIFACTS_AT_ONCE = 500
JOBS_AT_ONCE = 10_000  # jobs per statement that reads states


@dataclass(frozen=True, slots=True)
class Ended(Generic[A_co]):
    """How a job ended: with an artifact, or with an error, which `result` raises."""

    snapshot: Snapshot
    artifact: A_co | None = None
    error: ThothyError | None = None

    def result(self) -> A_co:
        """The artifact. Raises what `Job.result` would: a `JobEndedError`, or `UnreadableArtifactError`."""
        if self.error is not None:
            raise self.error
        return cast("A_co", self.artifact)


def ids_of(jobs: object) -> list[UUID]:
    """The ids of these handles, UUIDs or texts of UUIDs, in their order. Raises `InvalidJobError` for anything else."""
    if not isinstance(jobs, Iterable) or isinstance(jobs, str | bytes):
        raise InvalidJobError("jobs", f"{jobs!r} is not a list of jobs or of their ids")
    ids = []
    for job in jobs:
        job_id = getattr(job, "id", job)
        if not isinstance(job_id, UUID | str):
            raise InvalidJobError("jobs", f"{job!r} is neither a job nor the id of one")
        ids.append(parse_id(job_id))
    return ids


class Gathering:
    """The jobs of one `wait_all`, in the order given; a job may be given several times."""

    def __init__(self, ids: Sequence[UUID], timeout: float | None) -> None:
        self.ids = ids
        self.schedule = PollSchedule(timeout)
        self._open = dict.fromkeys(ids)  # an ordered set
        self._ended: dict[UUID, Snapshot] = {}

    @property
    def done(self) -> bool:
        """Whether all jobs have ended."""
        return not self._open

    def ask(self, notified: set[UUID] | None) -> Iterator[list[UUID]]:
        """Open jobs to read, in parts: those notified as ended, or all of them (None)."""
        asked = [job_id for job_id in self._open if notified is None or job_id in notified]
        for start in range(0, len(asked), JOBS_AT_ONCE):
            yield asked[start : start + JOBS_AT_ONCE]

    def note(self, asked: Sequence[UUID], rows: Iterable[Any]) -> None:
        """Note the rows of the statement `producer/snapshots`. Raises `UnknownJobError` for a job without one."""
        found = {row["id"]: row for row in rows}
        for job_id in asked:
            snapshot = Snapshot.of(found.get(job_id), job_id)
            if snapshot.finished_at is not None:
                self._ended[job_id] = snapshot
                del self._open[job_id]

    def next_delay(self, *, listening: bool) -> float:
        """Seconds until the next poll. Raises `WaitTimeoutError` once the timeout has passed."""
        delay = self.schedule.next_delay(listening=listening)
        if delay is None:
            raise self.timed_out()
        return delay

    def timed_out(self) -> WaitTimeoutError:
        """The error that names the jobs which have not ended."""
        return WaitTimeoutError(list(self._open), len(set(self.ids)), self.schedule.timeout)

    def linger(self, notified: set[UUID] | None) -> float:
        """Seconds to wait for further notifications before these are followed."""
        return 0.0 if notified is None or self._open.keys() <= notified else LINGER_SECONDS

    def succeeded(self) -> Iterator[list[UUID]]:
        """The jobs whose artifacts are to be read, in parts."""
        found = [snapshot.id for snapshot in self._ended.values() if not snapshot.error()]
        for start in range(0, len(found), ARTIFACTS_AT_ONCE):
            yield found[start : start + ARTIFACTS_AT_ONCE]

    def outcomes(self, found: Mapping[UUID, Mapping[Any, Any]]) -> list[Ended[Any]]:
        """The outcomes in the order given; `found` are the rows of `producer/artifacts` for succeeded jobs."""
        known = {job_id: _ended(snapshot, found.get(job_id)) for job_id, snapshot in self._ended.items()}
        return [known[job_id] for job_id in self.ids]


def _ended(snapshot: Snapshot, row: Mapping[Any, Any] | None) -> Ended[Any]:
    error: JobEndedError | None = snapshot.error()
    if error is not None:
        return Ended(snapshot, error=error)
    try:
        return Ended(snapshot, read_artifact(snapshot, row))
    except (NeedsEditError, UnreadableArtifactError) as unreadable:
        return Ended(snapshot, error=unreadable)
