"""What `/api` takes and answers. The OpenAPI document is made from these classes."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field

from thothy_ai.db.states import Action, ArtifactVerdict, JobState, Notify, ReviewState
from thothy_ai.http.openai.fields import Body

MAX_JOBS = 10_000  # of a batch
MAX_VERSION = 2**31 - 2  # of Postgres' integers, and the next
MAX_WAIT = 60.0  # seconds of a long poll
DATE = re.compile(r"\d{4}-\d\d-")


def _check_moment(value: object) -> object:
    """A number is no time, although pydantic would read it as one."""
    if value is not None and not (isinstance(value, str) and DATE.match(value)):
        raise ValueError("must be a date and time with its zone, such as 2026-11-21T06:00:00Z")
    return value


Moment = Annotated[AwareDatetime, BeforeValidator(_check_moment)]
Whole = Annotated[int, Field(strict=True)]
Priority = Annotated[Whole, Field(ge=-100, le=100)]


class Given(Body):
    """A JSON object of a request. Times are texts with a time zone."""

    model_config = ConfigDict(strict=False)


class NewJob(Given):
    """A job to enqueue: the name of its kind, the request that this kind takes, and how to queue it."""

    kind: str
    request: dict[str, Any]
    priority: Priority = 0
    deadline: Moment | None = None
    not_before: Moment | None = None
    max_attempts: Annotated[Whole, Field(ge=1, le=32767)] | None = None
    max_compute_seconds: Annotated[float, Field(gt=0, strict=True, allow_inf_nan=False)] | None = None
    model: str | None = None


class NewJobAlone(NewJob):
    """A job to enqueue, and the URL to notify of its end. The header `Idempotency-Key` names it."""

    webhook: str | None = None


class NewJobOfBatch(NewJob):
    """A job of a batch, with an idempotency key of its own."""

    idempotency_key: str | None = None


class NewBatch(Given):
    """Jobs to enqueue together, all or none."""

    jobs: Annotated[list[NewJobOfBatch], Field(min_length=1, max_length=MAX_JOBS)]
    webhook: str | None = None
    notify: Notify = Notify.BATCH


class Parameters(BaseModel):
    """Parameters of a request's query."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class JobFilters(Parameters):
    """Which jobs are meant; those that match every parameter."""

    state: Annotated[list[JobState] | None, Field(description="May be repeated.")] = None
    kind: str | None = None
    key: Annotated[str | None, Field(description="An idempotency key, or its beginning and *.")] = None
    source: Annotated[str | None, Field(description="A source key, or its beginning.")] = None
    parent: Annotated[UUID | None, Field(description="The job that a follow-up came from.")] = None
    since: Moment | None = None
    until: Moment | None = None


class JobQuery(JobFilters):
    """Which jobs are listed, the newest first."""

    batch: Annotated[UUID | None, Field(description="The batch that they were enqueued in.")] = None
    after: Annotated[UUID | None, Field(description="The job after which the page begins.")] = None
    limit: Annotated[int, Field(ge=1, le=1000)] = 100


class ArtifactFilters(JobFilters):
    """Which artifacts are meant, and of which jobs."""

    verdict: ArtifactVerdict | None = None
    approved: Annotated[bool, Field(description="Only what a person has approved.")] = False


class ArtifactQuery(ArtifactFilters):
    """Which artifacts are listed, the newest first."""

    after: Annotated[str | None, Field(description="The cursor of the page before.")] = None
    limit: Annotated[int, Field(ge=1, le=1000)] = 100


class ExportQuery(ArtifactFilters):
    """Which artifacts are exported, and how they are written."""

    verdict: Annotated[
        ArtifactVerdict, Field(description="What people approved is accepted; what they rejected is not.")
    ] = ArtifactVerdict.ACCEPTED
    format: Annotated[
        Literal["jsonl", "csv", "md", "html"],
        Field(description="Lines of JSON, a table, Markdown documents one after the other, or a page."),
    ] = "jsonl"


class ReviewQuery(Parameters):
    """Which artifacts that wait for a person are listed."""

    review: Annotated[list[ReviewState], Field(description="May be repeated.")] = [
        ReviewState.NEEDS_REVIEW,
        ReviewState.NEEDS_EDIT,
    ]
    clean_since: Annotated[
        Moment | None, Field(description="Also artifacts without a finding, of jobs that ended since.")
    ] = None
    kind: str | None = None
    limit: Annotated[int, Field(ge=1, le=1000)] = 100


class NewDecision(Given):
    """A decision on a version. `by` is the name of the person; a key is named beside it."""

    version: Annotated[Whole, Field(ge=1, le=MAX_VERSION)]
    action: Action
    by: str | None = None
    note: str | None = None
    body: Annotated[dict[str, Any] | None, Field(description="All fields of an edit.")] = None
    voice: str | None = None


class BatchQuery(Parameters):
    """Which batches are listed, the newest first."""

    after: Annotated[UUID | None, Field(description="The batch after which the page begins.")] = None
    limit: Annotated[int, Field(ge=1, le=1000)] = 100


class WaitQuery(Parameters):
    """How long to wait for a job."""

    timeout: Annotated[float, Field(ge=0, le=MAX_WAIT, allow_inf_nan=False, description="In seconds.")] = 30.0


class Answered(BaseModel):
    """A JSON object of an answer. Later versions may add fields."""

    model_config = ConfigDict(from_attributes=True, frozen=True)


class JobAnswer(Answered):
    """A job at the moment when it was read."""

    id: UUID
    kind: str
    state: JobState
    review: ReviewState | None
    priority: int
    deadline: datetime | None
    attempt: int
    failures: int
    reason: str | None
    detail: str | None
    model: str | None
    idempotency_key: str | None
    source_key: str
    parent_id: UUID | None
    batch_id: UUID | None
    enqueued_at: datetime
    started_at: datetime | None
    finished_at: datetime | None


class JobList(Answered):
    """A page of jobs, the newest first."""

    data: list[JobAnswer]
    has_more: bool


class ArtifactAnswer(Answered):
    """An output of a job, with the verdict on it, and who approved or rejected it.

    `body` has its fields, or those that a person approved; it is NULL if the output did not parse. `text` is what the
    model wrote; NULL if a person has edited it.
    """

    job_id: UUID
    kind: str
    locale: str
    attempt: int
    verdict: ArtifactVerdict
    reason: str | None
    review: ReviewState | None
    approved_version: int | None
    decided_by: str | None
    decided_at: datetime | None
    model: str | None
    seed: int
    created_at: datetime
    body: Any
    text: str | None
    verification: dict[str, Any] | None
    provenance: dict[str, Any] | None


class ArtifactList(Answered):
    """A page of artifacts. `next` is the cursor of the page after it."""

    data: list[ArtifactAnswer]
    next: str | None


class WaitingAnswer(Answered):
    """A job whose artifact a person may decide on. `review` is `clean` if no check has found anything."""

    job_id: UUID
    kind: str
    review: str
    version: int
    deadline: datetime | None
    finished_at: datetime
    idempotency_key: str | None


class WaitingList(Answered):
    """Artifacts that wait for a person, the earliest deadline first."""

    data: list[WaitingAnswer]


class FindingAnswer(Answered):
    """A located doubt: characters of a field, which is named by its dotted path, and of the source."""

    reason: str
    detail: str
    part: str | None
    start: int | None
    end: int | None
    source_start: int | None
    source_end: int | None
    weight: float
    by: str


class FieldChangeAnswer(Answered):
    """What a person has made of a field."""

    part: str
    before: Any
    after: Any


class DecisionAnswer(Answered):
    """A decision that was made."""

    version: int
    action: Action
    decided_by: str
    decided_at: datetime
    note: str | None
    voice: str | None


class VersionAnswer(Answered):
    """The current version of a job's artifact. `problem` names the field by which an edit breaks the schema;
    `verification` says which model has held it against its source, null if none has.
    """

    job_id: UUID
    kind: str
    locale: str | None
    state: JobState
    review: ReviewState | None
    version: int
    deadline: datetime | None
    finished_at: datetime | None
    body: dict[str, Any] | None
    problem: str | None
    edited_by: str | None
    text: str | None
    source: str
    findings: list[FindingAnswer]
    verification: dict[str, Any] | None
    changes: list[FieldChangeAnswer]
    decisions: list[DecisionAnswer]


class AttemptAnswer(Answered):
    """An attempt at a job that has ended."""

    attempt: int
    outcome: str
    reason: str | None
    detail: str | None
    started_at: datetime
    finished_at: datetime
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    compute_seconds: float
    model: str | None


class JobEvent(Answered):
    """Something unusual that happened to a job."""

    at: datetime
    event: str
    detail: str | None


class FollowUpAnswer(Answered):
    """A job that an artifact asked for. `superseded` is the reason of one whose artifact is another now."""

    id: UUID
    kind: str
    state: JobState
    reason: str | None


class JobDetail(JobAnswer):
    """A job in full, with its history."""

    request: Any
    attempts: list[AttemptAnswer]
    events: list[JobEvent]
    follow_ups: list[FollowUpAnswer]
    artifacts: list[ArtifactAnswer]


class BatchAnswer(Answered):
    """Jobs that were enqueued together. `states` counts those that exist, their follow-ups among them."""

    id: UUID
    jobs: int
    states: dict[JobState, int]
    webhook: str | None
    created_at: datetime
    ended_at: datetime | None


class NewBatchAnswer(Answered):
    """A batch that was enqueued: its id, NULL if all of its jobs existed, and the ids of the jobs in their order."""

    id: UUID | None
    jobs: list[UUID]


class BatchList(Answered):
    """A page of batches, the newest first."""

    data: list[BatchAnswer]
    has_more: bool


class KindAnswer(Answered):
    """A kind of job: JSON schemas of what it takes and returns. `version` changes with its prompts."""

    name: str
    about: str
    version: str
    request: dict[str, Any]
    artifact: dict[str, Any]


class KindList(Answered):
    """All kinds of jobs that are known here."""

    data: list[KindAnswer]


class ErrorDetail(Answered):
    """What is wrong: for people, and for programs."""

    message: str
    type: Literal["invalid_request_error", "rate_limit_error", "server_error"]
    param: str | None
    code: str | None


class Error(Answered):
    """The answer to a request that is refused, or has failed."""

    error: ErrorDetail
