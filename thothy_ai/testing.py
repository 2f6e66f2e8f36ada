"""`InMemoryQueue`: a queue inside the test's process, without any server, for tests of code that enqueues jobs.

    queue = InMemoryQueue()
    queue.answer(Hook, HookArtifact(hook="Cargo bikes took the school run.", ...))
    publish(queue.producer, article)                # your code, which enqueues, and waits for results
    assert queue.requests(Hook) == [Hook(source=article)]

Requests, options, idempotency keys, the kinds' plans and checks, and the ends of attempts are handled by the service's
own code. Jobs run when `run` is called, or when a caller waits for one. docs/testing.md says what is left out.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar, cast
from uuid import UUID

from thothy_ai.db.states import Action, JobState, Outcome, ReviewState
from thothy_ai.engine.null.instances import instance_text
from thothy_ai.errors import InvalidJobError
from thothy_ai.jobs import (
    Artifact,
    Call,
    Context,
    Output,
    Previous,
    Rejection,
    RejectionReason,
    Request,
    Verdict,
    registry,
)  # fmt: skip
from thothy_ai.jobs.api.kind import A
from thothy_ai.jobs.api.plan import Outputs
from thothy_ai.plans.advance import Judgement, PlanError, PlannedJob, PlanStep, advance, judgement_of
from thothy_ai.plans.drafts import usefulness
from thothy_ai.producer import AsyncJob, AsyncProducer, EnqueueOptions, Job, Jobs, Producer, Snapshot
from thothy_ai.producer.drafts import load_kinds, settle
from thothy_ai.producer.operations import Pause, Query, Rows, Wait, drive, drive_async
from thothy_ai.producer.snapshot import ENDED
from thothy_ai.queue.follow_ups import settled
from thothy_ai.settings import Settings
from thothy_ai.worker import outcomes
from thothy_ai.worker.outcomes import Retry
from thothy_ai.worker.record.claims import Claim
from thothy_ai.worker.record.finish import NO_USAGE, Finish, Judged

if TYPE_CHECKING:
    from thothy_ai.producer.batches import BatchDraft
    from thothy_ai.producer.drafts import Draft
    from thothy_ai.producer.joined import AsyncGiven, Given
    from thothy_ai.producer.listener import Waiter
    from thothy_ai.producer.operations import Operation, Transaction
    from thothy_ai.producer.snapshot import PollSchedule

__all__ = ["InMemoryQueue"]

T = TypeVar("T")
R = TypeVar("R", bound=Request[Any])
Text = str | Mapping[str, Any]  # an output; a mapping stands for its JSON
Answer = Artifact | Rejection | Text | Sequence[Text]

AT_ONCE = Retry(0.0, 0.0)
CHANGES = (Action.EDIT, Action.SEND_BACK)  # the decisions that lead to another version
LOOK_SECONDS = 0.02  # between two looks for newly due jobs, while a caller waits


@dataclass(slots=True)
class _Job:
    """A job as the in-memory record keeps it."""

    id: UUID
    tenant: str
    kind: str
    request: Any  # JSON values
    source_key: str
    digest: str
    options: EnqueueOptions
    state: JobState = JobState.QUEUED
    attempt: int = 0
    failures: int = 0
    reason: str | None = None
    detail: str | None = None
    cancel_requested: bool = False
    enqueued_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    started_at: datetime | None = None
    finished_at: datetime | None = None
    previous: dict[str, Any] | None = None
    artifact: dict[str, Any] | None = None  # like a row of `producer/artifacts`, before any decision
    output: Judged | None = None  # the accepted one or, after the last attempt, the best draft
    drafts: list[Judged] = field(default_factory=list)  # for a person to edit
    review: ReviewState | None = None
    version: int = 1
    edit: dict[str, Any] | None = None  # like a row of `artifact_version`
    decisions: list[dict[str, Any]] = field(default_factory=list)
    parent: UUID | None = None

    @property
    def snapshot(self) -> Snapshot:
        return Snapshot(
            self.id, self.tenant, self.kind, self.state, self.options.priority, self.options.deadline, self.attempt,
            self.failures, self.reason, self._why, self.cancel_requested, self.enqueued_at, self.started_at,
            self.finished_at, self.review,
        )  # fmt: skip

    @property
    def _why(self) -> str | None:
        """The detail or, if a person rejected the artifact, their name and note."""
        if self.review is not ReviewState.REJECTED:
            return self.detail
        return ": ".join(filter(None, (self.decisions[-1]["decided_by"], self.decisions[-1]["note"])))

    @property
    def snapshot_row(self) -> dict[str, Any]:
        """The job like a row of `producer/snapshot`."""
        return {name: getattr(self.snapshot, name) for name in Snapshot.__slots__}

    @property
    def result(self) -> dict[str, Any] | None:
        """The result like a row of `producer/artifacts`."""
        if self.artifact is None:
            return None
        now = self.current_version
        body = now["body"] if self.review is ReviewState.APPROVED else self.artifact["body"]
        return {
            "job_id": self.id,
            "body": body,
            "draft": now["body"],
            "findings": now["findings"],
            "edited": self.edit and self.version,
        }

    @property
    def current_version(self) -> dict[str, Any]:
        """The version like a row of `queue/current_version`."""
        options, written = self.options, self.artifact or {"draft": None, "findings": ()}
        edit = self.edit or {"body": written["draft"], "findings": written["findings"]}
        verification = dict(self.output.verification or {}) if self.output and not self.edit else {}
        claims = verification.pop("claims", ())
        return {
            "job_id": self.id, "tenant": self.tenant, "kind": self.kind, "state": self.state, "review": self.review,
            "version": self.version, "attempt": self.attempt, "deadline": options.deadline,
            "finished_at": self.finished_at, "source_key": self.source_key, "reason": self.reason,
            "detail": self.detail, "priority": options.priority, "max_attempts": options.max_attempts or 1,
            "max_compute_seconds": options.max_compute_seconds, "request": self.request,
            "locale": self.output and self.output.locale, "text": self.output and self.output.text,
            "written": written["draft"], "problem": None, "edited_by": None,
            "verification": verification if any(claim["label"] != "unread" for claim in claims) else None, **edit,
        }  # fmt: skip

    def decide(self, given: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Do what `queue/decide` does, and return the same rows."""
        waits = self.state is JobState.SUCCEEDED and self.version == given["version"]
        if not waits or (self.review or "clean") not in given["before"]:
            return []
        names = ("version", "action", "decided_by", "note", "voice")
        self.decisions.append({**{name: given[name] for name in names}, "decided_at": datetime.now(UTC)})
        before, self.review = self.current_version, given["after"]
        if given["action"] is Action.REOPEN and self.reason == ReviewState.SUPERSEDED:
            self.reason = None
        if given["action"] is Action.EDIT:
            self.version += 1
            found = {"problem": given["problem"], "findings": json.loads(given["findings"])}
            self.edit = {"body": json.loads(given["edit"]), **found, "edited_by": given["decided_by"], "text": None}
        if given["action"] is Action.SEND_BACK:
            self.version += 1
            self.previous = {
                "reason": self.reason or "sent_back", "detail": self.detail or "", "artifact": before["body"],
                "note": given["note"],
            }  # fmt: skip
            self.drafts = [self.output] if self.output else []
            self.artifact = self.finished_at = self.reason = self.detail = None
            self.state, self.failures = JobState.QUEUED, (self.options.max_attempts or 1) - 1
            late = self.options.deadline is not None and self.options.deadline <= datetime.now(UTC)
            self.options = replace(self.options, not_before=None, deadline=None if late else self.options.deadline)
        return [{"id": self.id}]

    @property
    def urgency(self) -> tuple[int, datetime, UUID]:
        """The key by which due jobs are sorted; the smallest runs first."""
        return -self.options.priority, self.options.deadline or datetime.max.replace(tzinfo=UTC), self.id

    def is_due(self, now: datetime) -> bool:
        return self.state is JobState.QUEUED and (self.options.not_before is None or self.options.not_before <= now)

    def end(self, state: JobState, now: datetime, reason: str | None = None) -> None:
        self.state, self.finished_at, self.reason, self.detail = state, now, reason, None

    def claim(self) -> Claim:
        """Begin the job's next attempt, as a worker's claim does."""
        self.attempt += 1
        self.state, self.started_at = JobState.RUNNING, datetime.now(UTC)
        options = self.options
        return Claim(
            self.id, 0, self.attempt, self.tenant, self.kind, self.failures, options.max_attempts or 1,
            options.max_compute_seconds, 0, options.priority, options.deadline, self.source_key, self.request,
            previous=self.previous and {**self.previous, "drafted": bool(self.drafts)},
        )  # fmt: skip


class InMemoryQueue:
    """Jobs, a `producer` and an `async_producer` that enqueue them, and the model's answers. Thread-safe.

    `settings` define the kinds, the tenant and the default limits; by default they are read from `THOTHY_*`.
    """

    def __init__(self, settings: Settings | None = None) -> None:
        self.settings = settings or Settings.load()
        load_kinds(self.settings)
        self.producer: Producer = _InMemoryProducer(self)
        self.async_producer: AsyncProducer = _InMemoryAsyncProducer(self)
        self._jobs: dict[UUID, _Job] = {}
        self._answers: dict[str, Answer | Callable[[Any], Answer]] = {}
        self._lock = threading.RLock()

    def answer(self, request: type[R], answer: Answer | Callable[[R], Answer]) -> None:
        """Set the answer to attempts at such requests from now on, or a function that makes it from the request.

        An artifact is accepted as it is, and a `Rejection` rejects the attempt; in both cases the kind's plan does not
        run. A text, or a mapping that stands for its JSON, is the output of every call of the plan; a list has one
        output per call, in order. Outputs are parsed and checked. Without an answer, the output is an instance of the
        call's schema, as from the null engine; the checks of many kinds refuse it.
        """
        self._answers[_name(request)] = answer

    def requests(self, request: type[R]) -> list[R]:
        """The requests of this class enqueued so far, including follow-ups, in order."""
        name = _name(request)
        with self._lock:
            return [request.model_validate(job.request) for job in self._jobs.values() if job.kind == name]

    def jobs(self) -> list[Snapshot]:
        """All jobs, in the order in which they were enqueued."""
        with self._lock:
            return [job.snapshot for job in self._jobs.values()]

    def run(self, at: datetime | None = None) -> int:
        """Run the due jobs, the most urgent first, with their retries and follow-ups; returns how many jobs ended.

        `at` is the time against which `not_before` and deadlines are compared; by default now. An error raised by a
        function that makes answers propagates.
        """
        ended = 0
        with self._lock:
            while due := [job for job in self._jobs.values() if job.is_due(at or datetime.now(UTC))]:
                job = min(due, key=lambda job: job.urgency)
                self._run(job, at or datetime.now(UTC))
                ended += job.finished_at is not None
        return ended

    def enqueue(self, drafts: Sequence[Draft], tenant: str) -> list[Draft]:
        """Insert all drafts, or none. Raises `IdempotencyConflictError`."""
        for draft in drafts:
            if draft.unbriefed:
                problem = "is the name of a stored brief, and this queue stores none: give the brief itself"
                raise InvalidJobError("brief", problem).at(draft.entry)
        with self._lock:
            held = [job for job in self._jobs.values() if job.tenant == tenant]
            holders = {job.options.idempotency_key: (job.id, job.digest) for job in held}
            for draft in drafts:
                holders.setdefault(draft.options.idempotency_key, (draft.id, draft.digest))
            holders.pop(None, None)
            rows = [
                {"idempotency_key": key, "id": str(id_), "digest": digest} for key, (id_, digest) in holders.items()
            ]
            settled = settle(drafts, rows)
            for draft in settled:
                if not draft.existed:
                    self._jobs[draft.id] = _Job(
                        draft.id, tenant, draft.kind, draft.body.values(), draft.source_key, draft.digest,
                        draft.options,
                    )  # fmt: skip
            return settled

    def ask(self, query: Query, tenant: str) -> Rows:
        """The rows with which Postgres would answer a producer's query."""
        given = query.parameters
        answers: dict[str, Callable[[_Job], Iterable[object]]] = {
            "queue/cancel": lambda job: [_cancelled(job)] if job.finished_at is None else [],
            "queue/change": lambda job: [_changed(job, given)] if job.state is JobState.QUEUED else [],
            "producer/snapshot": lambda job: [job.snapshot_row],
            "producer/snapshots": lambda job: [job.snapshot_row],
            "producer/artifacts": lambda job: [job.result] if job.result is not None else [],
            "queue/current_version": lambda job: [job.current_version],
            "queue/decisions": lambda job: job.decisions,
            "queue/decide": lambda job: job.decide(given),
            "queue/follow_ups_of": lambda job: self._made(job.id),
            "queue/supersede": lambda job: self._supersede([job.id]),
        }
        with self._lock:
            if query.name == "queue/follow_ups":
                return cast("Rows", [self._insert(row) for row in json.loads(str(given["rows"]))])
            wanted = cast("Iterable[UUID]", given["ids"] if "ids" in given else [given["id"]])
            found = [job for id_ in wanted if (job := self._jobs.get(id_)) is not None and job.tenant == tenant]
            return cast("Rows", [row for job in found for row in answers[query.name](job)])

    def _run(self, job: _Job, now: datetime) -> None:
        if job.options.deadline is not None and job.options.deadline <= now:
            return job.end(JobState.EXPIRED, now, "deadline")
        finish = self._attempt(job.claim())
        job.failures += finish.failures
        job.state, job.reason, job.detail = finish.state, finish.reason, finish.detail
        if finish.is_draft or finish.outcome is Outcome.SUCCEEDED:  # until then, the edit that was sent back stands
            job.edit = None
        if finish.is_draft and finish.judged is not None:
            if (job.previous or {}).get("note"):  # drafts from before it was sent back no longer count
                job.drafts.clear()
            job.drafts.append(finish.judged)
        if finish.outcome is Outcome.REJECTED:
            body = finish.judged.body if finish.judged is not None else None
            job.previous = {"reason": finish.reason, "detail": finish.detail or "", "artifact": body}
        if finish.state is JobState.QUEUED:
            return job.end(JobState.CANCELLED, now) if job.cancel_requested else None
        job.finished_at = datetime.now(UTC)
        job.review = finish.needs
        if finish.state is JobState.SUCCEEDED:
            accepted = finish.judged if finish.outcome is Outcome.SUCCEEDED else None
            job.output = kept = accepted or max(reversed(job.drafts), key=lambda of: usefulness(of.body, of.findings))
            findings = [finding.stored for finding in kept.findings]
            job.artifact = {"body": accepted and accepted.body, "draft": kept.body, "findings": findings}
        if finish.state is JobState.SUCCEEDED and finish.needs is None:
            rows, stale = settled([follow_up.row() for follow_up in finish.follow_ups], self._made(job.id))
            self._supersede(stale)
            for row in rows:
                self._insert(row)
        return None

    def _made(self, parent: UUID) -> list[dict[str, Any]]:
        """The rows that `queue/follow_ups_of` returns for this parent."""
        changed = [each["decided_at"] for each in self._jobs[parent].decisions if each["action"] in CHANGES]
        made = [job for job in self._jobs.values() if job.parent == parent]
        changed += [job.enqueued_at for job in made if job.reason == ReviewState.SUPERSEDED]
        return [
            {"id": job.id, "digest": job.digest, "of_this_version": current}
            for job in made
            if job.reason != ReviewState.SUPERSEDED
            if (current := not changed or job.enqueued_at > max(changed)) or job.state not in ENDED
        ]

    def _supersede(self, ids: Iterable[UUID]) -> list[UUID]:
        """Do what `queue/supersede` does, and return the ids of all superseded jobs."""
        taken = list(ids)
        for job in [self._jobs[id_] for id_ in taken if self._jobs[id_].state not in ENDED]:
            theirs = [each["id"] for each in self._made(job.id)]
            if job.state is JobState.QUEUED:
                job.end(JobState.CANCELLED, datetime.now(UTC))
            job.reason, job.detail = ReviewState.SUPERSEDED, "the text that it follows is another now"
            job.review = ReviewState.SUPERSEDED if job.state is JobState.SUCCEEDED else None
            taken += self._supersede(theirs)
        return taken

    def _insert(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Record a job from a row of `queue/follow_ups`."""
        deadline = datetime.fromisoformat(row["deadline"]) if row["deadline"] else None
        request = json.loads(row["request"]) | ({row["text_field"]: row["content"]} if row["text_field"] else {})
        made = _Job(
            UUID(row["id"]), row["tenant"], row["kind"], request, row["source_key"], row["digest"],
            EnqueueOptions(row["priority"], deadline, max_attempts=row["max_attempts"]), parent=UUID(row["parent_id"]),
        )  # fmt: skip
        self._jobs[made.id] = made
        return {"id": made.id}

    def _attempt(self, claim: Claim) -> Finish:
        texts: list[str] = []
        try:
            judgement = self._judgement(claim, texts)
        except PlanError as error:
            if error.permanent:
                return outcomes.dead(claim, error.reason, error.detail)
            return outcomes.failed(claim, error.reason, error.detail, AT_ONCE, 0.0)
        return outcomes.judged(claim, judgement, "\n".join(texts), NO_USAGE)

    def _judgement(self, claim: Claim, texts: list[str]) -> Judgement:
        """The judgement of the test's answer; outputs are appended to `texts`."""
        previous = None
        if rejected := claim.previous:
            previous = Previous(
                RejectionReason(rejected["reason"]), rejected["detail"], rejected["artifact"], rejected.get("note")
            )
        job = PlannedJob(
            claim.kind,
            claim.request,
            Context(previous=previous),
            self.settings.policy_of(claim.kind),
            self.settings.kv_budget_of(claim.kind),
        )
        answered = list[Outputs]()
        kind = registry.find(claim.kind)
        request = kind.request.model_validate(claim.request)
        answer = self._answers.get(kind.name)
        if callable(answer):
            answer = answer(request)
        if isinstance(answer, Artifact):
            if not isinstance(answer, kind.artifact):
                raise TypeError(f"jobs of the kind {kind.name} have a {kind.artifact.__name__}, not {answer!r}")
            return judgement_of(kind, request, Verdict.accept(answer), job.policy)
        if isinstance(answer, Rejection):
            return judgement_of(kind, request, Verdict.reject(answer), job.policy)
        while isinstance(step := advance(job, answered), PlanStep):
            outputs = [Output(_written(answer, call, len(texts) + number)) for number, call in enumerate(step.calls)]
            texts += [output.text for output in outputs]
            answered.append(tuple(outputs))
        return step


class _InMemoryProducer(Producer):
    """A `Producer` of an `InMemoryQueue`. It ignores `connection=` and enqueues jobs at once."""

    def __init__(self, queue: InMemoryQueue) -> None:
        self.settings = queue.settings
        self._queue = queue

    def close(self) -> None:
        """There is no connection to close."""

    def _enqueue(self, drafts: list[Draft], given: Given | None, batch: BatchDraft | None) -> Jobs[Job[A]]:  # noqa: ARG002
        settled = self._queue.enqueue(drafts, self.settings.tenant)
        jobs = [Job[A](self, one.id, one.kind, existed=one.existed) for one in settled]
        return Jobs(jobs, _batch_id(batch, settled))

    def _transact(self, operation: Transaction[T], given: Given | None = None) -> T:  # noqa: ARG002
        return drive(operation, lambda query: self._queue.ask(query, self.settings.tenant))

    def _wait(self, ids: Iterable[UUID], schedule: PollSchedule, start: Callable[[Waiter], Operation[T]]) -> T:  # noqa: ARG002
        def perform(step: Query | Wait | Pause) -> Rows | bool | None:
            match step:
                case Query():
                    return self._queue.ask(step, self.settings.tenant)
                case Wait(seconds):
                    if not self._queue.run():
                        time.sleep(min(seconds, LOOK_SECONDS))
                    return True
                case Pause():
                    return None

        return drive(start(cast("Waiter", _Runs())), perform)


class _InMemoryAsyncProducer(AsyncProducer):
    """An `AsyncProducer` of an `InMemoryQueue`."""

    def __init__(self, queue: InMemoryQueue) -> None:
        self.settings = queue.settings
        self._queue = queue

    async def close(self) -> None:
        """There is no connection to close."""

    async def _enqueue(
        self,
        drafts: list[Draft],
        given: AsyncGiven | None,  # noqa: ARG002
        batch: BatchDraft | None,
    ) -> Jobs[AsyncJob[A]]:
        settled = self._queue.enqueue(drafts, self.settings.tenant)
        jobs = [AsyncJob[A](self, one.id, one.kind, existed=one.existed) for one in settled]
        return Jobs(jobs, _batch_id(batch, settled))

    async def _transact(self, operation: Transaction[T], given: AsyncGiven | None = None) -> T:  # noqa: ARG002
        return drive(operation, lambda query: self._queue.ask(query, self.settings.tenant))

    async def _wait(self, ids: Iterable[UUID], schedule: PollSchedule, start: Callable[[Waiter], Operation[T]]) -> T:  # noqa: ARG002
        async def perform(step: Query | Wait | Pause) -> Rows | bool | None:
            match step:
                case Query():
                    return self._queue.ask(step, self.settings.tenant)
                case Wait(seconds):
                    if not self._queue.run():
                        await asyncio.sleep(min(seconds, LOOK_SECONDS))
                    return True
                case Pause():
                    return None

        return await drive_async(start(cast("Waiter", _Runs())), perform)


class _Runs:
    """Stands in for a `Waiter` whose connection listens. It names no jobs, so that a caller looks at all of them."""

    def listen(self) -> bool:
        return True

    def take(self) -> set[UUID] | None:
        return None


def _name(request: type[Request[Any]]) -> str:
    return registry.kind_of(request.model_construct()).name


def _cancelled(job: _Job) -> dict[str, Any]:
    job.cancel_requested = True
    if job.state is not JobState.RUNNING:
        job.end(JobState.CANCELLED, datetime.now(UTC))
    return {"id": job.id, "state": job.state}


def _changed(job: _Job, given: Mapping[str, Any]) -> dict[str, Any]:
    wanted = json.loads(given["change"])
    for name in {"deadline", "not_before"} & wanted.keys():
        wanted[name] = wanted[name] and datetime.fromisoformat(wanted[name])
    options = replace(job.options, **wanted)
    start, deadline = options.not_before, options.deadline
    in_time = start is None or deadline is None or start < deadline or start <= datetime.now(UTC)
    if in_time:
        job.options = options
    return {"id": job.id, "changed": in_time}


def _batch_id(batch: BatchDraft | None, settled: Sequence[Draft]) -> UUID | None:
    return batch.id if batch is not None and not all(draft.existed for draft in settled) else None


def _written(answer: Text | Sequence[Text] | None, call: Call, number: int) -> str:
    """The text of the attempt's call with this number."""
    if isinstance(answer, Sequence) and not isinstance(answer, str):
        if number >= len(answer):
            raise ValueError(f"{len(answer)} texts are given, and the plan makes a further call ({call.step})")
        answer = answer[number]
    if answer is None:
        return instance_text(json.dumps(call.schema))
    return answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False)
