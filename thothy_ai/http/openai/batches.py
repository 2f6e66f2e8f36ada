"""`/v1/batches`: runs the requests of a file as jobs of the queue; their answers become files."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from uuid_utils.compat import uuid7

from thothy_ai.batches.lines import ENDPOINTS
from thothy_ai.db.states import BatchStatus
from thothy_ai.errors import InvalidJobError
from thothy_ai.http.access import caller_of, header
from thothy_ai.http.asgi import body_of
from thothy_ai.http.errors import ApiError
from thothy_ai.http.openai import files
from thothy_ai.http.openai.fields import Body, parsed
from thothy_ai.http.openai.files import ExpiresAfter, file_id_of, missing_file, unix
from thothy_ai.http.openai.pages import Page, page_of, parse_id, spell_id, whole
from thothy_ai.http.record import DoorRecord
from thothy_ai.producer.drafts import require_key

PREFIX = "batch_"
TIMES = (
    "created_at", "in_progress_at", "expires_at", "finalizing_at", "completed_at", "failed_at", "expired_at",
    "cancelling_at", "cancelled_at",
)  # fmt: skip
UNDER_WAY = {BatchStatus.IN_PROGRESS, BatchStatus.FINALIZING, BatchStatus.CANCELLING}
Key = Annotated[str, Field(min_length=1, max_length=64)]
Value = Annotated[str, Field(max_length=512)]


class BatchBody(Body):
    """A request for a batch."""

    input_file_id: str
    endpoint: str
    completion_window: Literal["24h"]
    metadata: Annotated[dict[Key, Value], Field(max_length=16)] | None = None
    output_expires_after: ExpiresAfter | None = None


class ApiBatches:
    """The routes of batches of requests."""

    def __init__(self, record: DoorRecord) -> None:
        self._record = record
        self.routes = [
            Route("/v1/batches", self.create, methods=["POST"]),
            Route("/v1/batches", self.list_),
            Route("/v1/batches/{id}", self.retrieve),
            Route("/v1/batches/{id}/cancel", self.cancel, methods=["POST"]),
        ]

    async def create(self, request: Request) -> Response:
        tenant = caller_of(request.scope, "jobs").tenant
        body = parsed(BatchBody, await body_of(request))
        if body.endpoint not in ENDPOINTS:
            says = f"endpoint: {body.endpoint!r} has no batches; {', '.join(ENDPOINTS)} have"
            raise ApiError(400, says, code="invalid_value", param="endpoint")
        try:
            file_id = parse_id(body.input_file_id, files.PREFIX, "file")
        except ApiError:
            raise missing_file(body.input_file_id, "input_file_id") from None
        key = header(request.scope, b"idempotency-key")
        try:
            require_key(key)
        except InvalidJobError as error:
            raise ApiError(400, f"Idempotency-Key {error.message}", code="invalid_value", param=error.field) from None
        output_seconds = body.output_expires_after.seconds if body.output_expires_after else None
        rows = await self._record.ask(
            "batches/create",
            id=uuid7(),
            tenant=tenant,
            endpoint=body.endpoint,
            file=file_id,
            metadata=None if body.metadata is None else json.dumps(body.metadata),
            output_seconds=output_seconds,
            key=key,
        )
        if not rows:
            raise missing_file(body.input_file_id, "input_file_id")
        [row] = rows
        first = (row.endpoint, row.input_file_id, row.metadata, row.output_seconds)
        if first != (body.endpoint, file_id, body.metadata, output_seconds):
            says = f"the idempotency key belongs to a different request, that of {spell_id(PREFIX, row.id)}"
            raise ApiError(409, says, code="idempotency_conflict", param="idempotency_key")
        return JSONResponse((await self._objects(tenant, rows))[0])

    async def list_(self, request: Request) -> Response:
        tenant = caller_of(request.scope, "read").tenant
        page = page_of(Page, request)
        rows = await self._record.ask("batches/list", tenant=tenant, after=page.after_id(PREFIX), limit=page.limit + 1)
        return JSONResponse(whole(await self._objects(tenant, rows), page.limit))

    async def retrieve(self, request: Request) -> Response:
        tenant = caller_of(request.scope, "read").tenant
        return JSONResponse(await self._found(tenant, request.path_params["id"]))

    async def cancel(self, request: Request) -> Response:
        """Cancel a batch. One that is already being cancelled, or was, is returned unchanged."""
        tenant = caller_of(request.scope, "jobs").tenant
        given = request.path_params["id"]
        rows = await self._record.ask("batches/cancel", id=parse_id(given, PREFIX, "batch"), tenant=tenant)
        batch = (await self._objects(tenant, rows))[0] if rows else await self._found(tenant, given)
        if not rows and batch["status"] not in {BatchStatus.CANCELLING, BatchStatus.CANCELLED}:
            raise ApiError(409, f"the batch is {batch['status']}", code="batch_not_cancellable")
        return JSONResponse(batch)

    async def _found(self, tenant: str, given: str) -> dict[str, Any]:
        rows = await self._record.ask("batches/one", id=parse_id(given, PREFIX, "batch"), tenant=tenant)
        if not rows:
            raise ApiError(404, f"there is no batch {given!r}", code="batch_not_found")
        return (await self._objects(tenant, rows))[0]

    async def _objects(self, tenant: str, rows: Sequence[Any]) -> list[dict[str, Any]]:
        """The batches; unfinished ones count the requests that have ended so far."""
        running = [row.id for row in rows if row.status in UNDER_WAY]
        counts = await self._record.ask("batches/counts", ids=running, tenant=tenant) if running else ()
        so_far = {count.id: count for count in counts}
        return [batch_object(row, so_far.get(row.id)) for row in rows]


def batch_object(row: Any, counts: Any = None) -> dict[str, Any]:
    """The API's object for a batch; `counts` are for a batch that has not ended."""
    counted = counts or row
    return {
        "id": spell_id(PREFIX, row.id),
        "object": "batch",
        "endpoint": row.endpoint,
        "model": row.model,
        "errors": row.errors,
        "input_file_id": file_id_of(row.input_file_id),
        "completion_window": "24h",
        "status": row.status,
        "output_file_id": file_id_of(row.output_file_id),
        "error_file_id": file_id_of(row.error_file_id),
        **{name: unix(getattr(row, name)) for name in TIMES},
        "request_counts": {"total": row.requests, "completed": counted.completed, "failed": counted.failed},
        "usage": row.usage,
        "metadata": row.metadata,
    }
