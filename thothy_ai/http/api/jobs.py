"""`/api/jobs`: enqueue, list, look at, wait for, watch, cancel and retry jobs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import TypeVar
from uuid import UUID

from sqlalchemy import Engine
from starlette.responses import StreamingResponse

from thothy_ai.admin import jobs as admin
from thothy_ai.admin.filters import JobFilter
from thothy_ai.admin.job_watch import JobSnapshot
from thothy_ai.db.connect import reaching
from thothy_ai.errors import (
    EntryError,
    IdempotencyConflictError,
    InvalidJobError,
    UnknownJobError,
    WaitTimeoutError,
)
from thothy_ai.http.api.models import (
    JobAnswer,
    JobDetail,
    JobFilters,
    JobList,
    JobQuery,
    NewJob,
    NewJobAlone,
    Parameters,
    WaitQuery,
)
from thothy_ai.http.api.operations import Operation, OperationCall, missing, stream_of
from thothy_ai.http.asgi import error_event
from thothy_ai.http.errors import ApiError
from thothy_ai.http.following import JobFollowers
from thothy_ai.http.openai.events import PING, encoded
from thothy_ai.http.record import DoorRecord
from thothy_ai.jobs import Request
from thothy_ai.producer import AsyncProducer, EnqueueOptions
from thothy_ai.producer.drafts import parse_request
from thothy_ai.settings import Settings

T = TypeVar("T")

PING_SECONDS = 15.0
EVENT_HEADERS = {"cache-control": "no-cache", "x-accel-buffering": "no"}  # nginx would collect events


class JobOperations:
    """The operations on jobs. `database` is read on threads."""

    def __init__(self, settings: Settings, record: DoorRecord, producer: AsyncProducer, database: Engine) -> None:
        self._settings, self._record, self._producer, self._database = settings, record, producer, database
        self.followers = JobFollowers(settings, database)
        job = "/api/jobs/{id}"
        self.operations = (
            Operation(
                "POST", "/api/jobs", "Enqueue a job. With a key, a job that has it is answered instead.", "jobs",
                self.enqueue, body=NewJobAlone, keyed=True, answer=JobAnswer,
            ),
            Operation("GET", "/api/jobs", "List jobs.", "read", self.list_, query=JobQuery, answer=JobList),
            Operation("GET", job, "A job in full.", "read", self.show, answer=JobDetail),
            Operation(
                "GET", f"{job}/wait", "The job once it has ended, or as it is after the timeout.", "read", self.wait,
                query=WaitQuery, answer=JobAnswer,
            ),
            Operation(
                "GET", f"{job}/events", "Server-sent events until the job has ended: `state` and `text`, then `end`.",
                "read", self.events, query=Parameters, media=("text/event-stream",),
            ),
            Operation("POST", f"{job}/cancel", "Cancel it unless it has ended.", "jobs", self.cancel, answer=JobAnswer),
            Operation(
                "POST", f"{job}/retry", "Queue a dead, cancelled or expired job again.", "jobs", self.retry,
                answer=JobAnswer,
            ),
        )  # fmt: skip

    async def read(self, ask: Callable[[], T]) -> T:
        """The result of an operator's function that waits for the database, run on a thread."""

        def asked() -> T:
            with reaching(self._settings):
                return ask()

        return await asyncio.to_thread(asked)

    async def cancelled(self, ids: Sequence[UUID]) -> None:
        """Cancel those of these jobs that are open."""
        await self.read(lambda: admin.cancel(self._database, ids))

    async def enqueue(self, call: OperationCall) -> JobAnswer:
        wanted: NewJobAlone = call.body
        request, options = entry_of(wanted, call.key)
        try:
            producer = self._producer.of_tenant(call.caller.tenant)
            job = await producer.enqueue_many([(request, options)], webhook=wanted.webhook)
        except EntryError as error:
            raise refusal(error.at(None)) from None
        return await self._job(call, job[0].id)

    async def list_(self, call: OperationCall) -> JobList:
        wanted: JobQuery = call.query
        found = await self.read(
            lambda: admin.list_jobs(
                self._database,
                replace(filter_of(wanted, call.caller.tenant), batch_id=wanted.batch),
                since=wanted.since,
                until=wanted.until,
                after=wanted.after,
                limit=wanted.limit + 1,
            )
        )
        jobs = [JobAnswer.model_validate(each) for each in found[: wanted.limit]]
        return JobList(data=jobs, has_more=len(found) > wanted.limit)

    async def show(self, call: OperationCall) -> JobDetail:
        await self._job(call, call.id)
        try:
            return JobDetail.model_validate(await self.read(lambda: admin.show_job(self._database, call.id)))
        except UnknownJobError:  # deleted meanwhile
            raise missing("job", call.id) from None

    async def wait(self, call: OperationCall) -> JobAnswer:
        await self._job(call, call.id)
        producer = self._producer.of_tenant(call.caller.tenant)
        try:
            await producer.wait_all([call.id], call.query.timeout)
        except WaitTimeoutError:
            pass
        except UnknownJobError:  # deleted meanwhile
            raise missing("job", call.id) from None
        return await self._job(call, call.id)

    async def events(self, call: OperationCall) -> StreamingResponse:
        job, by = await self._job(call, call.id), f"{call.caller.tenant} {call.caller.key}"
        return await stream_of(self._events(job.id, by), "text/event-stream; charset=utf-8", EVENT_HEADERS)

    async def _events(self, job_id: UUID, by: str) -> AsyncIterator[bytes]:
        """A job's states and the text of its attempts, until it has ended."""
        state, sent_at = None, time.monotonic()
        try:
            async with aclosing(self.followers.follow(job_id, by)) as steps:
                async for step in steps:
                    if not isinstance(step, JobSnapshot):
                        yield _event("text", {"attempt": step.attempt, "at": step.at, "text": step.text})
                    elif (now := (step.state, step.attempt)) != state:
                        state = now
                        yield _event("state", {"state": step.state, "attempt": step.attempt})
                    elif time.monotonic() - sent_at >= PING_SECONDS:
                        yield PING
                    else:
                        continue
                    sent_at = time.monotonic()
                    if isinstance(step, JobSnapshot) and step.state.terminal:
                        yield _event("end", {"state": step.state, "reason": step.reason, "detail": step.detail})
        except UnknownJobError:  # deleted meanwhile
            yield error_event(missing("job", job_id))

    async def cancel(self, call: OperationCall) -> JobAnswer:
        await self._job(call, call.id)
        await self.cancelled([call.id])
        return await self._job(call, call.id)

    async def retry(self, call: OperationCall) -> JobAnswer:
        await self._job(call, call.id)
        if not await self.read(lambda: admin.redrive(self._database, [call.id])):
            state = (await self._job(call, call.id)).state
            says = f"the job is {state}: only a dead, cancelled or expired one can be queued again"
            raise ApiError(409, says, code="not_retryable")
        return await self._job(call, call.id)

    async def _job(self, call: OperationCall, job_id: UUID) -> JobAnswer:
        """The job, if it is the caller's; otherwise `ApiError` 404."""
        rows = await self._record.ask("admin/job", job_id=job_id)
        if not rows or rows[0].tenant != call.caller.tenant:
            raise missing("job", job_id)
        return JobAnswer.model_validate(rows[0])


def entry_of(wanted: NewJob, key: str | None, at: str = "") -> tuple[Request, EnqueueOptions]:
    """A job to enqueue. `ApiError` names the wrong field; `at` is the job's path in the body."""
    try:
        request = parse_request(wanted.kind, wanted.request)
    except InvalidJobError as error:
        field = "kind" if error.field == "kind" else f"request.{error.field}"
        raise ApiError(400, f"{at}{field}: {error.message}", code="invalid_value", param=f"{at}{field}") from None
    return request, EnqueueOptions(
        priority=wanted.priority,
        deadline=wanted.deadline,
        not_before=wanted.not_before,
        idempotency_key=key,
        max_attempts=wanted.max_attempts,
        max_compute_seconds=wanted.max_compute_seconds,
        model=wanted.model,
    )


def refusal(error: EntryError, at: str = "") -> ApiError:
    """The error for a job that the queue refuses."""
    if isinstance(error, IdempotencyConflictError):
        return ApiError(409, str(error), code="idempotency_conflict", param=f"{at}idempotency_key")
    field = getattr(error, "field", None)
    return ApiError(400, str(error), code="invalid_value", param=f"{at}{field}" if field else None)


def filter_of(wanted: JobFilters, tenant: str) -> JobFilter:
    """The tenant's jobs that match."""
    return JobFilter(tuple(wanted.state or ()), wanted.kind, wanted.key, wanted.source, wanted.parent, tenant=tenant)


def _event(name: str, value: object) -> bytes:
    return b"event: " + name.encode() + b"\ndata: " + encoded(value) + b"\n\n"
