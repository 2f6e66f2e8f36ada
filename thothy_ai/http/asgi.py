"""One HTTP exchange over ASGI: a bounded body of strict JSON in, an answer or server-sent events out."""

from __future__ import annotations

import asyncio
import json
import re
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Any, ClassVar, TypeVar

from starlette.requests import Request
from starlette.types import Message, Receive, Scope, Send

from thothy_ai.http.errors import RETRY_SECONDS, ApiError
from thothy_ai.http.threads import PARSERS
from thothy_ai.queue.strict_json import read

MAX_BODY = 8 * 1024 * 1024  # bytes: a prompt of a million tokens, and room beside it
MAX_VALUES = 1_100_000  # per body, counted by punctuation: parsing holds the GIL, even on a thread
MAX_HELD = 512 * 1024 * 1024  # bytes of all running requests' bodies together
LARGE = 64 * 1024  # bytes from which a body is parsed on a thread
BODY_SECONDS = 30.0  # for a body to arrive, and one second more for each `SLOWEST` bytes
SLOWEST = 64 * 1024
LINGER_SECONDS = 2.0  # for the rest of a refused body: a client that is still sending would miss the answer
T = TypeVar("T")
HALVES, NUL = re.compile("[\ud800-\udfff]"), re.compile("\0")
JSON_TYPE = b"application/json"
EVENTS = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),  # nginx would collect events
)


class Exchange:
    """A request and its answer, each sent once."""

    held: ClassVar[int] = 0  # bytes of bodies, of all exchanges

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scope, self._receive, self._send = scope, receive, send
        self.id = new_id()
        self.headers = {b"x-request-id": self.id.encode()}  # of every answer
        self.status: int | None = None  # once the answer has begun
        self._whole = False  # the body has been read
        self._failed: Callable[[ApiError], bytes] | None = None  # once there are events, the last one after an error
        self._ended = False
        self._begun, self._received = time.monotonic(), 0

    @property
    def size(self) -> int:
        """The announced length of the body in bytes; 0 without one."""
        lengths = [int(value) for name, value in self.scope["headers"] if name == b"content-length"]
        return min(sum(lengths), MAX_BODY)

    @asynccontextmanager
    async def body(self) -> AsyncIterator[bytes]:
        """The whole JSON body. It counts towards `held` until the block ends. Raises `ApiError` for a body that is too
        large, too slow or of another type, or if too many bytes are held.
        """
        kinds = [value for name, value in self.scope["headers"] if name == b"content-type"]
        if [kind.partition(b";")[0].strip().lower() for kind in kinds] != [JSON_TYPE]:
            # A web page may post other types to this machine without asking.
            raise ApiError(415, "the body's content type is not application/json", code="unsupported_media_type")
        if any(name == b"content-encoding" and value != b"identity" for name, value in self.scope["headers"]):
            raise ApiError(415, "the body is compressed: send it as it is", code="unsupported_media_type")
        parts: list[bytes] = []
        try:
            while not self._whole:
                message = await self.receive()
                if message["type"] == "http.disconnect":
                    raise ApiError(408, "the client has gone", code="client_disconnected")
                parts.append(message["body"])
                Exchange.held += len(message["body"])
                if self._received > MAX_BODY:
                    raise ApiError(413, f"the body has more than {MAX_BODY:,} bytes", code="request_too_large")
                if Exchange.held > MAX_HELD:
                    says = "the bodies of all requests have too many bytes"
                    raise ApiError(503, says, code="server_busy", retry_after=RETRY_SECONDS)
            data = b"".join(parts)
            parts = [data]
            yield data
        finally:
            Exchange.held -= sum(map(len, parts))

    async def receive(self) -> Message:
        """The next message of the request; `ApiError` if the body arrives too slowly."""
        if self._whole:
            return await self._receive()
        until = self._begun + BODY_SECONDS + self._received / SLOWEST
        try:
            async with asyncio.timeout(until - time.monotonic()):
                message = await self._receive()
        except TimeoutError:
            raise ApiError(408, "the body did not arrive in time", code="request_timeout") from None
        if message["type"] == "http.request":
            self._received += len(message.get("body", b""))
            self._whole = not message.get("more_body", False)
        return message

    async def answer(self, status: int, body: object, headers: Iterable[tuple[bytes, bytes]] = ()) -> None:
        """Answer with JSON and its length."""
        data = json.dumps(body, ensure_ascii=False, allow_nan=False).encode()
        length = (b"content-length", str(len(data)).encode())
        await self._begin(status, [(b"content-type", JSON_TYPE), length, *headers])
        await self._send({"type": "http.response.body", "body": data})

    async def refuse(self, error: ApiError) -> None:
        """Answer with an error's envelope, or end a stream of events with it. Does nothing once another answer has
        begun.
        """
        if self.status is None:
            await self._discard()
            headers = ((name.encode(), value.encode()) for name, value in error.headers.items())
            await self.answer(error.status, error.body, headers)
        elif self._failed is not None and not self._ended:
            await self.send(self._failed(error))
            await self.end()

    async def begin_events(self, failed: Callable[[ApiError], bytes]) -> None:
        """Begin an answer of server-sent events. `send` adds to it; `end` or the event of an error ends it."""
        self._failed = failed
        await self._begin(200, EVENTS)

    async def send(self, data: bytes) -> None:
        await self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def end(self) -> None:
        self._ended = True
        await self._send({"type": "http.response.body", "body": b""})

    async def left(self) -> None:
        """Wait until the client has gone. Call it once the body is read."""
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def pass_on(self, message: Message) -> None:
        """Forward a message of another application's answer."""
        if message["type"] == "http.response.start":
            headers = message.get("headers", ())
            self._failed = error_event if EVENTS[0] in headers else None
            await self._begin(message["status"], headers)
        else:
            self._ended = not message.get("more_body", False)
            await self._send(message)

    async def _discard(self) -> None:
        """Read the rest of a body without keeping it, however long it is, unless that takes long."""
        with suppress(ApiError, TimeoutError):
            async with asyncio.timeout(LINGER_SECONDS):
                while not self._whole:
                    if (await self.receive())["type"] == "http.disconnect":
                        return

    async def _begin(self, status: int, headers: Iterable[tuple[bytes, bytes]]) -> None:
        self.status = status
        headers = [*headers, *self.headers.items()]
        names = {b"content-length", b"transfer-encoding"}
        if not self._whole and not names.isdisjoint(name for name, _ in self.scope["headers"]):
            # The rest of the body could keep the connection for ever.
            headers.append((b"connection", b"close"))
        await self._send({"type": "http.response.start", "status": status, "headers": headers})


def error_event(error: ApiError) -> bytes:
    """The event of an error among named ones."""
    return b"event: error\ndata: " + json.dumps(error.body, ensure_ascii=False).encode() + b"\n\n"


def new_id() -> str:
    """A request's id, as `x-request-id` carries it."""
    return f"req_{uuid.uuid4().hex}"


async def parsed(data: bytes, make: Callable[[Any], T]) -> T:
    """The result of `make` for a body's JSON value; computed on a thread if the body is large."""
    if len(data) < LARGE:
        return make(strict_json(data))
    return await asyncio.get_running_loop().run_in_executor(PARSERS, lambda: make(strict_json(data)))


def strict_json(data: bytes) -> Any:
    """The value of a JSON text. A key that occurs twice in one object, NaN and infinities are refused (`ApiError`)."""
    if len(data) > LARGE and sum(map(data.count, (b",", b"[", b"{", b'":'))) > MAX_VALUES:
        raise ApiError(413, f"the body has more than {MAX_VALUES:,} values", code="request_too_large")
    try:
        value = read(data)
    except ValueError as error:
        raise ApiError(400, f"the body is not valid JSON: {error}", code="invalid_json") from None
    if b"\\ud" in data or b"\\uD" in data:
        _refuse(HALVES, "a lone surrogate is not text", value)
    return value


def _refuse(signs: re.Pattern[str], says: str, value: Any) -> None:
    if (place := _place_of(signs, value)) is not None:
        raise ApiError(400, f"{place or 'the body'}: {says}", code="invalid_value", param=place or None)


def _place_of(signs: re.Pattern[str], value: Any) -> str | None:
    """The path of a string in a JSON value that has one of these characters; for a key, its object's path."""
    waiting: list[tuple[str, Any]] = [("", value)]
    while waiting:
        place, value = waiting.pop()
        match value:
            case str() if signs.search(value):
                return place
            case dict():
                if any(map(signs.search, value)):
                    return place
                waiting += [(f"{place}.{key}".removeprefix("."), each) for key, each in value.items()]
            case list():
                waiting += [(f"{place}.{at}".removeprefix("."), each) for at, each in enumerate(value)]
    return None


async def body_of(request: Request) -> Any:
    """The JSON value, for storing, of a request to one of Starlette's routes. Raises `ApiError` like
    `Exchange.body`.
    """

    def kept(value: Any) -> Any:
        _refuse(NUL, "a NUL character cannot be kept", value)
        return value

    async with Exchange(request.scope, request.receive, request._send).body() as data:
        return await parsed(data, kept)
