"""`/api/jobs`: enqueue, list, look at, wait for, watch, cancel and retry jobs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar
from uuid import UUID

from sqlalchemy import Engine
from starlette.responses import StreamingResponse

from thothy_ai.admin import jobs as admin
from thothy_ai.admin.filters import JobFilter
from thothy_ai.admin.job_watch import JobWatch
from thothy_ai.db.connect import reaching
from thothy_ai.errors import (
    DatabaseUnreachableError,
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
from thothy_ai.http.errors import RETRY_SECONDS, ApiError
from thothy_ai.http.openai.events import PING, encoded
from thothy_ai.http.record import DoorRecord
from thothy_ai.jobs import Request
from thothy_ai.producer import AsyncProducer, EnqueueOptions
from thothy_ai.producer.drafts import parse_request
from thothy_ai.queue.live import TextWatcher
from thothy_ai.settings import Settings

T = TypeVar("T")

WATCHERS = 64  # streams of events at once, each of which holds a thread
LOOK_SECONDS = 0.5  # between two looks at a job that is watched
PING_SECONDS = 15.0
EVENT_HEADERS = {"cache-control": "no-cache", "x-accel-buffering": "no"}  # nginx would collect events


class JobOperations:
    """The operations on jobs. `database` is read on threads."""

    def __init__(self, settings: Settings, record: DoorRecord, producer: AsyncProducer, database: Engine) -> None:
        self._settings, self._record, self._producer, self._database = settings, record, producer, database
        self._watchers = ThreadPoolExecutor(WATCHERS, thread_name_prefix="watcher")
        self._watching = 0
        self.ending = False  # streams end once it is True
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
        """What a function of operators answers, which waits for the database."""

        def asked() -> T:
            with reaching(self._settings):
                return ask()

        return await asyncio.to_thread(asked)

    async def cancelled(self, ids: Sequence[UUID]) -> None:
        """Cancel these jobs, as far as they are open."""
        await self.read(lambda: admin.cancel(self._database, ids))

    def close(self) -> None:
        """Let the streams of events end."""
        self._watchers.shutdown(wait=False, cancel_futures=True)

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
                filter_of(wanted, call.caller.tenant),
                since=wanted.since,
                until=wanted.until,
                batch_id=wanted.batch,
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
        await self._job(call, call.id)
        if self._watching >= WATCHERS:
            says = f"{WATCHERS} jobs are being watched already"
            raise ApiError(429, says, code="too_many_requests", retry_after=RETRY_SECONDS)
        return await stream_of(self._watched(call.id), "text/event-stream; charset=utf-8", EVENT_HEADERS)

    async def _watched(self, job_id: UUID) -> AsyncIterator[bytes]:
        """A job's states, and what its attempts write, until it has ended."""
        loop = asyncio.get_running_loop()
        job, live = JobWatch(self._database, job_id), TextWatcher(self._settings, job_id)
        state, sent_at = None, time.monotonic()
        self._watching += 1  # nothing was awaited since it was compared
        try:
            while not self.ending:
                try:
                    snapshot = await self.read(job.look)
                except DatabaseUnreachableError:  # which passes
                    if state is None:
                        raise
                except UnknownJobError:  # deleted meanwhile
                    yield error_event(missing("job", job_id))
                    return
                if (now := (snapshot.state, snapshot.attempt)) != state:
                    state = now
                    yield _event("state", {"state": snapshot.state, "attempt": snapshot.attempt})
                    sent_at = time.monotonic()
                if snapshot.state.terminal:
                    yield _event("end", {"state": snapshot.state, "reason": snapshot.reason, "detail": snapshot.detail})
                    return
                piece = await loop.run_in_executor(self._watchers, live.next, LOOK_SECONDS)
                while piece is not None:
                    yield _event("text", {"attempt": piece.attempt, "at": piece.at, "text": piece.text})
                    sent_at = time.monotonic()
                    piece = await loop.run_in_executor(self._watchers, live.next, 0.01)
                if time.monotonic() - sent_at >= PING_SECONDS:
                    yield PING
                    sent_at = time.monotonic()
        finally:
            self._watching -= 1
            live.close()

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
        """The job, if it is the caller's; ApiError 404 otherwise."""
        rows = await self._record.ask("admin/job", job_id=job_id)
        if not rows or rows[0].tenant != call.caller.tenant:
            raise missing("job", job_id)
        return JobAnswer.model_validate(rows[0])


def entry_of(wanted: NewJob, key: str | None, at: str = "") -> tuple[Request, EnqueueOptions]:
    """A job to enqueue; ApiError names its field, `at` a place in the body."""
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
    """What is answered for a job that the queue refuses."""
    if isinstance(error, IdempotencyConflictError):
        return ApiError(409, str(error), code="idempotency_conflict", param=f"{at}idempotency_key")
    field = getattr(error, "field", None)
    return ApiError(400, str(error), code="invalid_value", param=f"{at}{field}" if field else None)


def filter_of(wanted: JobFilters, tenant: str) -> JobFilter:
    """The tenant's jobs that match."""
    return JobFilter(tuple(wanted.state or ()), wanted.kind, wanted.key, wanted.source, wanted.parent, tenant=tenant)


def _event(name: str, value: object) -> bytes:
    return b"event: " + name.encode() + b"\ndata: " + encoded(value) + b"\n\n"
