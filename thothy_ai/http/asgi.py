"""One HTTP exchange over ASGI: a bounded body of strict JSON in, an answer or server-sent events out."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

from starlette.types import Message, Receive, Scope, Send

from thothy_ai.http.errors import ApiError

MAX_BODY = 16 * 1024 * 1024  # bytes: a prompt of a million tokens, and room beside it
BODY_SECONDS = 30.0  # for all of a body to arrive
JSON_TYPE = b"application/json"
EVENTS = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),  # nginx would collect events
)


class Exchange:
    """A request and its answer, each sent once."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scope, self._receive, self._send = scope, receive, send
        self.id = new_id()
        self.status: int | None = None  # once the answer has begun
        self._whole = False  # the body has been read

    async def json(self) -> Any:
        """The body as JSON; ApiError for one that is too large, too slow, or that means different things to different
        readers.
        """
        kinds = [value for name, value in self.scope["headers"] if name == b"content-type"]
        if [kind.partition(b";")[0].strip().lower() for kind in kinds] != [JSON_TYPE]:
            # A web page may post other types to this machine without asking.
            raise ApiError(415, "the body's content type is not application/json", code="unsupported_media_type")
        parts: list[bytes] = []
        size, more = 0, True
        try:
            async with asyncio.timeout(BODY_SECONDS):
                while more:
                    message: Message = await self._receive()
                    if message["type"] == "http.disconnect":
                        raise ApiError(408, "the client has gone", code="client_disconnected")
                    parts.append(message.get("body", b""))
                    size += len(parts[-1])
                    if size > MAX_BODY:
                        raise ApiError(413, f"the body has more than {MAX_BODY:,} bytes", code="request_too_large")
                    more = message.get("more_body", False)
        except TimeoutError:
            says = f"the body did not arrive within {BODY_SECONDS:g} s"
            raise ApiError(408, says, code="request_timeout") from None
        self._whole = True
        return strict_json(b"".join(parts))

    async def answer(self, status: int, body: object, headers: Iterable[tuple[bytes, bytes]] = ()) -> None:
        """Answer with JSON and its length."""
        data = json.dumps(body, ensure_ascii=False, allow_nan=False).encode()
        length = (b"content-length", str(len(data)).encode())
        await self._begin(status, [(b"content-type", JSON_TYPE), length, *headers])
        await self._send({"type": "http.response.body", "body": data})

    async def refuse(self, error: ApiError) -> None:
        """Answer with an error's envelope."""
        retry = [] if error.retry_after is None else [(b"retry-after", str(error.retry_after).encode())]
        await self.answer(error.status, error.body, retry)

    async def begin_events(self) -> None:
        """Begin an answer of server-sent events, which `send` sends and `end` ends."""
        await self._begin(200, EVENTS)

    async def send(self, data: bytes) -> None:
        await self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def end(self) -> None:
        await self._send({"type": "http.response.body", "body": b""})

    async def left(self) -> None:
        """Wait until the client has gone. Call it once the body is read."""
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def _begin(self, status: int, headers: Iterable[tuple[bytes, bytes]]) -> None:
        self.status = status
        headers = [*headers, (b"x-request-id", self.id.encode())]
        if not self._whole:  # the rest of the body could keep the connection for ever
            headers.append((b"connection", b"close"))
        await self._send({"type": "http.response.start", "status": status, "headers": headers})


def new_id() -> str:
    """A request's id, as `x-request-id` carries it."""
    return f"req_{uuid.uuid4().hex}"


def strict_json(data: bytes) -> Any:
    """The value of a JSON text. A key that occurs twice in one object, NaN and infinities are refused (`ApiError`)."""
    try:
        return json.loads(data.decode(), object_pairs_hook=_once_each, parse_constant=_no_number)
    except RecursionError:
        problem = "it is nested too deeply"
    except ValueError as error:  # JSON, UTF-8, numbers with thousands of digits, and ours
        problem = str(error)
    raise ApiError(400, f"the body is not valid JSON: {problem}", code="invalid_json")


def _once_each(pairs: list[tuple[str, object]]) -> Mapping[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        (twice, _), *_ = Counter(name for name, _ in pairs).most_common(1)
        raise ValueError(f"the key {twice!r} occurs twice in an object")
    return found


def _no_number(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a JSON number")
