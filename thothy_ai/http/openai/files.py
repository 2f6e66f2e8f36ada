"""`/v1/files`: the uploaded inputs of batches, and their results."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import Field
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Message, Receive
from uuid_utils.compat import uuid7

from thothy_ai.batches.storage import FileStore
from thothy_ai.db.states import FilePurpose
from thothy_ai.http.access import caller_of
from thothy_ai.http.errors import RETRY_SECONDS, ApiError
from thothy_ai.http.openai.fields import Body, parsed
from thothy_ai.http.openai.pages import Page, page_of, parse_id, spell_id, whole
from thothy_ai.http.record import DoorRecord

PREFIX = "file-"
MAX_FILE = 200_000_000  # bytes: OpenAI's limit for the input of a batch
MAX_FORM = MAX_FILE + 64 * 1024  # with the form's other fields and their separators
UPLOADS = 8  # at once: each can take that much of the disk
TENANT_UPLOADS = 4  # uploads at once of one tenant
PLACE_SECONDS = 5.0  # that an upload waits for a place, while its body's time limit runs
DAY = 86_400
INPUT_SECONDS = 30 * DAY  # that an input is kept
CHUNK = 256 * 1024
UNREADABLE = ApiError(400, "the body is not a form with a file", code="invalid_form", param="file")


class FilePage(Page):
    """Which files are listed, in which order."""

    limit: Annotated[int, Field(ge=1, le=10_000)] = 10_000
    purpose: FilePurpose | None = None
    order: Literal["asc", "desc"] = "desc"


class UploadFields(Body):
    """The fields of an upload besides the file."""

    purpose: Literal["batch"]
    expires_after: ExpiresAfter | None = None


class ExpiresAfter(Body):
    """How long a file is kept."""

    anchor: Literal["created_at"]
    seconds: Annotated[int, Field(ge=3600, le=30 * DAY)]


class Files:
    """The routes of files, and places for uploads."""

    def __init__(self, record: DoorRecord, store: FileStore) -> None:
        self._record, self._store = record, store
        self._uploads = asyncio.Semaphore(UPLOADS)
        self._tenants_uploads = defaultdict[str, asyncio.Semaphore](lambda: asyncio.Semaphore(TENANT_UPLOADS))
        path = "/v1/files/{id}"
        self.routes = [
            Route("/v1/files", self.create, methods=["POST"]),
            Route("/v1/files", self.list_),
            Route(path, self.retrieve),
            Route(path, self.delete, methods=["DELETE"]),
            Route(f"{path}/content", self.content),
        ]

    async def create(self, request: Request) -> Response:
        tenant = caller_of(request.scope, "jobs").tenant
        if not request.headers.get("content-type", "").startswith("multipart/form-data"):
            raise UNREADABLE
        bounded = Request(request.scope, _bounded(request.receive))
        async with self._place(tenant):
            try:
                async with bounded.form(max_files=1, max_fields=8) as form:
                    row = await self._add(tenant, form)
            except (MultiPartException, HTTPException, ClientDisconnect) as error:  # of Starlette's parser
                says = f"the form cannot be read: {getattr(error, 'detail', None) or error}"
                raise ApiError(400, says, code="invalid_form") from None
        return JSONResponse(file_object(row))

    @asynccontextmanager
    async def _place(self, tenant: str) -> AsyncIterator[None]:
        """A place for an upload; `ApiError` 429 if none becomes free soon."""
        async with AsyncExitStack() as stack:
            try:
                async with asyncio.timeout(PLACE_SECONDS):
                    await stack.enter_async_context(self._tenants_uploads[tenant])
                    await stack.enter_async_context(self._uploads)
            except TimeoutError:
                says = "too many files are being uploaded"
                raise ApiError(429, says, code="too_many_requests", retry_after=RETRY_SECONDS) from None
            yield

    async def _add(self, tenant: str, form: Mapping[str, Any]) -> Any:
        upload = form.get("file")
        if not isinstance(upload, UploadFile):
            raise UNREADABLE
        fields = parsed(UploadFields, _nested({name: value for name, value in form.items() if name != "file"}))
        if not upload.size:
            raise ApiError(400, "the file is empty", code="empty_file", param="file")
        if upload.size > MAX_FILE:
            raise _too_large()
        name = "".join(each if each.isprintable() else "_" for each in upload.filename or "")[:255] or "file"
        file_id = uuid7()
        content = await asyncio.to_thread(self._store.place, file_id, upload.file, upload.size)
        [row] = await self._record.ask(
            "batches/add_file",
            id=file_id,
            tenant=tenant,
            name=name,
            size=upload.size,
            seconds=fields.expires_after.seconds if fields.expires_after else INPUT_SECONDS,
            content=content,
        )
        return row

    async def list_(self, request: Request) -> Response:
        tenant = caller_of(request.scope, "read").tenant
        page = page_of(FilePage, request)
        rows = await self._record.ask(
            "batches/files",
            tenant=tenant,
            purpose=page.purpose,
            after=page.after_id(PREFIX),
            ascending=page.order == "asc",
            limit=page.limit + 1,
        )
        return JSONResponse(whole([file_object(row) for row in rows], page.limit))

    async def retrieve(self, request: Request) -> Response:
        return JSONResponse(file_object(await self._found(request)))

    async def content(self, request: Request) -> Response:
        row = await self._found(request, whole_file=True)
        try:
            content = await asyncio.to_thread(self._store.open, row.id, row.content)
        except OSError:
            says = "the file's content is not on this machine: see THOTHY_FILES_FOLDER"
            raise ApiError(500, says, code="server_error") from None

        async def chunks() -> AsyncIterator[bytes]:
            with content:
                while chunk := await asyncio.to_thread(content.read, CHUNK):
                    yield chunk

        headers = {"content-length": str(row.size)}
        return StreamingResponse(chunks(), media_type="application/octet-stream", headers=headers)

    async def delete(self, request: Request) -> Response:
        tenant = caller_of(request.scope, "jobs").tenant
        file_id = parse_id(request.path_params["id"], PREFIX, "file")
        if not await self._record.ask("batches/delete_file", id=file_id, tenant=tenant):
            raise missing_file(request.path_params["id"])
        return JSONResponse({"id": spell_id(PREFIX, file_id), "object": "file", "deleted": True})

    async def _found(self, request: Request, *, whole_file: bool = False) -> Any:
        tenant = caller_of(request.scope, "read").tenant
        given = request.path_params["id"]
        file_id = parse_id(given, PREFIX, "file")
        rows = await self._record.ask("batches/file", id=file_id, tenant=tenant, whole=whole_file)
        if not rows:
            raise missing_file(given)
        return rows[0]


def missing_file(file_id: str, param: str | None = None) -> ApiError:
    """The error for a file that is not this tenant's, was deleted or has expired."""
    return ApiError(404, f"there is no file {file_id!r}", code="file_not_found", param=param)


def file_object(row: Any) -> dict[str, Any]:
    """The API's object for a file."""
    return {
        "id": spell_id(PREFIX, row.id),
        "object": "file",
        "bytes": row.size,
        "created_at": unix(row.created_at),
        "expires_at": unix(row.expires_at),
        "filename": row.name,
        "purpose": row.purpose,
        "status": "processed",
    }


def unix(moment: datetime | None) -> int | None:
    """The API's form of a time: seconds since 1970."""
    return None if moment is None else int(moment.timestamp())


def file_id_of(file_id: UUID | None) -> str | None:
    """The API's form of a file's id."""
    return None if file_id is None else spell_id(PREFIX, file_id)


def _bounded(receive: Receive) -> Receive:
    """Limits the size of a body while it arrives."""
    size = 0

    async def counted() -> Message:
        nonlocal size
        message = await receive()
        size += len(message.get("body", b""))
        if size > MAX_FORM:
            raise _too_large()
        return message

    return counted


def _too_large() -> ApiError:
    return ApiError(413, f"a file may have {MAX_FILE:,} bytes", code="file_too_large", param="file")


def _nested(fields: Mapping[str, Any]) -> dict[str, Any]:
    """A form's fields. Clients write nested ones as `expires_after[seconds]`."""
    found: dict[str, Any] = {}
    for name, value in fields.items():
        outer, bracket, inner = name.removesuffix("]").partition("[")
        if bracket:
            number = isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 10
            fields = found.setdefault(outer, {})
            if not isinstance(fields, dict):
                raise ApiError(400, f"{outer}: is both a value and {name!r}", code="invalid_value", param=outer)
            fields[inner] = int(value) if number else value
        else:
            found[name] = value
    return found
