"""`Operation`: one operation of `/api`, declared once for its route and for the document."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from thothy_ai.http.access import Caller, Right, caller_of, header
from thothy_ai.http.api.models import Given
from thothy_ai.http.asgi import body_of
from thothy_ai.http.errors import ApiError
from thothy_ai.http.openai.fields import parsed
from thothy_ai.http.openai.pages import page_of

KEY = "Idempotency-Key"


@dataclass(frozen=True, slots=True)
class OperationCall:
    """A request for an operation, with query and body in the declared classes."""

    caller: Caller
    request: Request
    query: Any = None
    body: Any = None

    @property
    def id(self) -> UUID:
        """The id in the path; `ApiError` 404 for an impossible one."""
        given = self.request.path_params["id"]
        try:
            return UUID(given)
        except ValueError:
            raise missing("object", given) from None

    @property
    def key(self) -> str | None:
        """The request's idempotency key, if any."""
        return header(self.request.scope, KEY.lower().encode())


Run = Callable[[OperationCall], Awaitable[BaseModel | Response]]


@dataclass(frozen=True, slots=True)
class Operation:
    """A method and a path, its input, and its answer: a model, or a stream of one of these media types."""

    method: str
    path: str
    about: str
    right: Right
    run: Run
    query: type[BaseModel] | None = None
    body: type[Given] | None = None
    keyed: bool = False  # it takes the header `Idempotency-Key`
    answer: type[BaseModel] | None = None
    media: tuple[str, ...] = ("application/json",)

    @property
    def name(self) -> str:
        """The operation's name in generated clients."""
        parts = [part for part in self.path.removeprefix("/api/").split("/") if part != "{id}"]
        return "_".join([self.method.lower(), *parts, *(["one"] if self.path.endswith("{id}") else [])])

    @property
    def route(self) -> Route:
        """The route that Starlette serves it by."""
        return Route(self.path, self._answer, methods=[self.method])

    async def _answer(self, request: Request) -> Response:
        call = OperationCall(
            caller_of(request.scope, self.right),
            request,
            page_of(self.query, request) if self.query else None,
            parsed(self.body, await body_of(request)) if self.body else None,
        )
        answer = await self.run(call)
        return answer if isinstance(answer, Response) else JSONResponse(answer.model_dump(mode="json"))


async def stream_of(
    pieces: AsyncIterator[bytes], media: str, headers: Mapping[str, str] | None = None
) -> StreamingResponse:
    """A stream that starts once its first piece exists, so that an earlier failure sets the status."""
    first = await anext(pieces, b"")

    async def whole() -> AsyncIterator[bytes]:
        yield first
        async for piece in pieces:
            yield piece

    return StreamingResponse(whole(), media_type=media, headers=headers)


def missing(what: str, given: object) -> ApiError:
    """The error for a thing that this tenant does not have."""
    return ApiError(404, f"there is no {what} {str(given)!r}", code="not_found")
