"""One server over HTTP/1.1: its connections, which are kept for the next request, and answers as they arrive.

All waits are bounded: connecting, and each silence of the server. What breaks is a `ConnectionLostError`.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import httptools

from thothy_ai.engine.api.errors import ConnectionLostError, InvalidRequestError, ProtocolError, one_line

CONNECT_SECONDS = 10.0
IDLE_SECONDS = 3.0  # after which a connection is not used again: servers close them after 5 s
MAX_BODY = 64 << 20  # bytes of an answer that is read as a whole
MAX_EVENT = 16 << 20
_CHUNK = 1 << 16
_DONE = b"[DONE]"


class HttpServer:
    """Owns the connections to one server. Used on one loop. `url` is that of its API, as https://host/v1."""

    def __init__(self, url: str, key: str | None = None, silence_seconds: float = 600.0) -> None:
        """Raises `InvalidRequestError` for an invalid URL."""
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as error:
            raise InvalidRequestError(f"engine URL {url!r}: {error}") from error
        if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.username:
            raise InvalidRequestError(f"engine URL {url!r}: it must look like https://host/v1")
        self.url = url.rstrip("/")
        self.silence_seconds = silence_seconds
        self._host, self._path = parts.hostname, parts.path.rstrip("/")
        self._tls = ssl.create_default_context() if parts.scheme == "https" else None
        self._port = port or (443 if self._tls else 80)
        bearer = f"authorization: Bearer {key}\r\n" if key else ""
        self._headers = f"host: {parts.netloc}\r\naccept: application/json, text/event-stream\r\n{bearer}"
        if not self._headers.isascii() or (key and not key.isprintable()):
            raise InvalidRequestError("the key, or the host, has characters that no header can carry")
        self._idle: list[tuple[float, _Connection]] = []

    @asynccontextmanager
    async def exchange(self, method: str, path: str, body: object = None) -> AsyncIterator[Answer]:
        """Send a request, whose body becomes JSON unless it is bytes, and wait for the answer's headers.

        What is not read of the answer when the block ends is cut off.
        """
        connection = await self._ask(method, path, body)
        try:
            yield connection.answer
        finally:
            if connection.reusable:
                self._idle.append((time.monotonic(), connection))
            else:
                connection.close()

    async def close(self) -> None:
        """Close the connections that are not in use."""
        while self._idle:
            self._idle.pop()[1].close()

    async def _ask(self, method: str, path: str, body: object) -> _Connection:
        data = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        kind = "content-type: application/json\r\n" if data else ""
        head = f"{method} {self._path}{path} HTTP/1.1\r\n{self._headers}{kind}content-length: {len(data)}\r\n\r\n"
        while True:
            connection = self._kept()
            fresh = connection is None
            connection = connection or await self._connected()
            try:
                await connection.ask(head.encode() + data, self.silence_seconds)
            except (OSError, TimeoutError, ConnectionLostError) as error:
                connection.close()
                if not fresh and not connection.heard:
                    continue  # the server closed it meanwhile
                raise ConnectionLostError(f"{self.url} {_says(error, self.silence_seconds)}") from None
            except BaseException:
                connection.close()
                raise
            return connection

    def _kept(self) -> _Connection | None:
        while self._idle:
            at, connection = self._idle.pop()
            if time.monotonic() - at < IDLE_SECONDS:
                return connection
            connection.close()
        return None

    async def _connected(self) -> _Connection:
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                reader, writer = await asyncio.open_connection(self._host, self._port, ssl=self._tls)
        except (OSError, TimeoutError) as error:
            raise ConnectionLostError(f"{self.url} cannot be reached: {_says(error, CONNECT_SECONDS)}") from None
        return _Connection(reader, writer, self.url)


class Answer:
    """A status, headers with names in lower case, and a body that arrives."""

    def __init__(self, connection: _Connection) -> None:
        self._connection = connection
        self.status = 0
        self.headers: dict[str, str] = {}

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body's pieces as they arrive."""
        while data := await self._connection.body():
            yield data

    async def json(self) -> Any:
        """The whole body; ProtocolError if it is not JSON."""
        data = await self.whole()
        try:
            return json.loads(data)
        except (ValueError, RecursionError):
            raise ProtocolError(f"{self._connection.url} sent no JSON: {data[:200]!r}") from None

    async def whole(self) -> bytes:
        data = bytearray()
        async for chunk in self.chunks():
            data += chunk
            if len(data) > MAX_BODY:
                raise ProtocolError(f"{self._connection.url} sent more than {MAX_BODY:,} bytes")
        return bytes(data)

    async def events(self) -> AsyncIterator[list[Any]]:
        """The JSON of the server-sent events of each piece, until `[DONE]`; an empty list for a comment alone.

        ConnectionLostError if the body ends before.
        """
        rest = bytearray()
        async for chunk in self.chunks():
            rest += chunk
            if len(rest) > MAX_EVENT:
                raise ProtocolError(f"{self._connection.url} sent an event of more than {MAX_EVENT:,} bytes")
            *lines, last = rest.split(b"\n")
            rest = bytearray(last)
            found: list[Any] = []
            for line in lines:
                data = line[5:].strip() if line.startswith(b"data:") else b""
                if data == _DONE:
                    yield found
                    async for _ in self.chunks():  # to its end, so that the connection can be used again
                        pass
                    return
                if data:
                    try:
                        found.append(json.loads(data))
                    except (ValueError, RecursionError):
                        sent = bytes(data[:200])
                        raise ProtocolError(
                            f"{self._connection.url} sent an event that is not JSON: {sent!r}"
                        ) from None
            yield found
        raise ConnectionLostError(f"{self._connection.url} ended a stream before its end")


class _Connection:
    """One connection, with one request at a time. Methods named `on_` are called by the parser."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, url: str) -> None:
        self._reader, self._writer, self.url = reader, writer, url
        self.heard = False  # whether any of the last answer has arrived

    async def ask(self, data: bytes, silence_seconds: float) -> None:
        """Send a request, and read up to the end of the answer's headers."""
        self._silence = silence_seconds
        self._parser = httptools.HttpResponseParser(self)
        self.answer = Answer(self)
        self._body: list[bytes] = []
        self._begun = self._complete = self.heard = False
        self._writer.write(data)
        async with asyncio.timeout(silence_seconds):
            await self._writer.drain()
        while not self._begun:
            await self._read()

    async def body(self) -> bytes:
        """The part of the body that has arrived; empty at its end."""
        while not self._body and not self._complete:
            try:
                await self._read()
            except (OSError, TimeoutError) as error:
                raise ConnectionLostError(f"{self.url} {_says(error, self._silence)}") from None
        data, self._body = b"".join(self._body), []
        return data

    @property
    def reusable(self) -> bool:
        return self._complete and self._parser.should_keep_alive() and not self._reader.at_eof()

    def close(self) -> None:
        self._writer.transport.abort()

    async def _read(self) -> None:
        async with asyncio.timeout(self._silence):
            data = await self._reader.read(_CHUNK)
        if not data:
            headers = self.answer.headers
            if not self._begun or "content-length" in headers or "transfer-encoding" in headers:
                raise ConnectionLostError(f"{self.url} closed the connection")
            self._complete = True  # this body ends with its connection
            return
        self.heard = True
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            raise ProtocolError(f"{self.url} does not speak HTTP: {one_line(error)}") from None

    def on_header(self, name: bytes, value: bytes) -> None:
        self.answer.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        self.answer.status = self._parser.get_status_code()
        self._begun = self.answer.status >= 200

    def on_body(self, data: bytes) -> None:
        self._body.append(data)

    def on_message_complete(self) -> None:
        self._complete = self._begun


def _says(error: Exception, seconds: float) -> str:
    if isinstance(error, TimeoutError):
        return f"was silent for {seconds:g} s"
    return one_line(error)
