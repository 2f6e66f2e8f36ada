"""`thothy serve`: the door's process."""

from __future__ import annotations

import asyncio
import gc
import ipaddress
import json
import resource
import signal
import socket
import ssl
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from http import HTTPStatus
from typing import Any

import uvicorn
from sqlalchemy import Engine
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from thothy_ai.db.connect import make_engine
from thothy_ai.db.schema import refuse_other_schema
from thothy_ai.errors import ConfigError
from thothy_ai.http.access import Access, Everybody
from thothy_ai.http.accounts import Accounts
from thothy_ai.http.app import make_app
from thothy_ai.http.asgi import LINGER_SECONDS, Exchange, new_id
from thothy_ai.http.console.console import Console
from thothy_ai.http.directory import Registered, Single
from thothy_ai.http.engines import Directory, Fleet
from thothy_ai.http.errors import RETRY_SECONDS, ApiError
from thothy_ai.http.keys import Keys
from thothy_ai.http.ledger import Ledger
from thothy_ai.http.limits import Limiter
from thothy_ai.http.queue_routes import QueueRoutes
from thothy_ai.settings import Settings
from thothy_ai.telemetry import configure_logging, serve_metrics

HEADER_SECONDS = 10.0  # for a request's headers to arrive, once it has begun
MAX_HEADER_BYTES = 64 * 1024
KEEP_ALIVE_SECONDS = 75  # of an idle connection: longer than proxies in front keep theirs
FINISH_SECONDS = 30  # for unfinished answers when the door is stopped
UNREAD_SECONDS = 30.0  # for a client to read some of the pending output
MAX_CONNECTIONS = 10_000
POOL = 3  # connections to Postgres
TOO_LONG = ApiError(431, f"the headers have more than {MAX_HEADER_BYTES:,} bytes", code="headers_too_large")


def main(settings: Settings) -> None:
    """Serve until SIGTERM. Raises `ConfigError` for an address that other machines can reach although there are no
    keys, unless the settings open it to anyone, and for an unusable certificate.
    """
    configure_logging(settings)
    _check_certificate(settings)
    with ExitStack() as stack:
        database: Engine | None = None
        queue: QueueRoutes | None = None
        console: Console | None = None
        directory: Directory
        if settings.database_url is None:
            directory = Single(settings)
        else:
            refuse_other_schema(settings)
            database = make_engine(settings, application="serve", pool_size=POOL)
            stack.callback(database.dispose)
            directory = Registered(settings, database)
            queue, console = QueueRoutes(settings), Console(settings)
        access = _access(settings, database)
        serve_metrics(settings)
        fleet = Fleet(directory, settings.interactive_share)
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 2 * MAX_CONNECTIONS)), hard))
        gc.collect()
        gc.freeze()  # imported modules stay: the collector need not traverse them again
        accounts = Accounts(Limiter(settings), Ledger(settings, database))
        ending = [part.end_streams for part in (queue, console) if part is not None]
        server = make_server(make_app(fleet, access, accounts, queue, console), settings, ending)
        for stop in (signal.SIGTERM, signal.SIGINT):  # which uvicorn raises again once it has ended
            signal.signal(stop, lambda *_: setattr(server, "should_exit", True))
        server.run()


class DoorServer(uvicorn.Server):
    """A server that announces its stop, so that endless streams can end."""

    def __init__(self, config: uvicorn.Config, ending: Iterable[Callable[[], None]]) -> None:
        super().__init__(config)
        self._ending = tuple(ending)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for end in self._ending:
            end()
        await super().shutdown(sockets)


def make_server(app: ASGIApp, settings: Settings, ending: Iterable[Callable[[], None]] = ()) -> DoorServer:
    """The server, not yet started, with bounded connections, headers and times. It calls `ending` when it stops."""
    certificate, key = settings.http_tls_certificate, settings.http_tls_key
    return DoorServer(
        uvicorn.Config(
            app,
            settings.http_host,
            settings.http_port,
            loop="uvloop",
            http=BoundedProtocol,
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,
            proxy_headers=bool(settings.http_proxies),
            forwarded_allow_ips=list(settings.http_proxies),
            server_header=False,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=FINISH_SECONDS,
            ssl_certfile=certificate,
            ssl_keyfile=key,
            backlog=2048,
        ),
        ending,
    )


def _access(settings: Settings, database: Engine | None) -> Access:
    """Who may send requests. Raises `ConfigError` if anyone on other machines could, and the settings do not say so."""
    here = _is_loopback(settings.http_host)
    everybody = Everybody(settings.tenant, settings.http_hosts if here or settings.http_hosts else None)
    if settings.http_keys == "off":
        return everybody
    if database is not None:
        keys = Keys(settings, database, everybody if here else None)
        if here or keys.look():
            return keys
    elif here:
        return everybody
    raise ConfigError(
        f"other machines may reach {settings.http_host}, and anyone there could use the engines: create a key"
        " first with `thothy keys create`, listen on 127.0.0.1, or allow it with --no-keys (THOTHY_HTTP_KEYS=off)"
    )


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _check_certificate(settings: Settings) -> None:
    certificate, key = settings.http_tls_certificate, settings.http_tls_key
    if key is not None and certificate is None:
        raise ConfigError("THOTHY_HTTP_TLS_KEY is set, and THOTHY_HTTP_TLS_CERTIFICATE is not")
    if certificate is None:
        return

    def no_password() -> str:  # which would be asked for on a terminal
        raise ConfigError("the key of THOTHY_HTTP_TLS_KEY has a password: store it without one")

    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, no_password)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"THOTHY_HTTP_TLS_CERTIFICATE {certificate} cannot be used: {error}") from None


async def _busy(scope: Scope, receive: Receive, send: Send) -> None:
    error = ApiError(503, "too many connections", code="server_busy", retry_after=RETRY_SECONDS)
    await Exchange(scope, receive, send).refuse(error)


class BoundedProtocol(HttpToolsProtocol):
    """A connection that ends if the headers of a request are too long or too slow, or if the client does not read.

    Refusals before the application is reached also have OpenAI's envelope.
    """

    _refused = False  # once True, further input is ignored
    _bytes = 0  # of this request's headers
    _unparsed = 0  # bytes since the last part that was complete
    _timer: asyncio.TimerHandle | None = None  # until headers are expected
    _stuck: asyncio.TimerHandle | None = None  # until the client is expected to read

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._expect_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        self.resume_writing()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        self._unparsed += len(data)
        before = self._unparsed
        super().data_received(data)
        if self._unparsed == before > MAX_HEADER_BYTES:  # a line without an end
            self._refuse(TOO_LONG)
        elif self._timer is None and (self.cycle is None or self.cycle.response_complete):
            self._expect_headers()  # stray bytes after an answer must not hold the connection

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._bytes = self._unparsed = 0
        self._expect_headers()

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        self._count(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        super().on_header(name, value)
        self._count(len(name) + len(value) + 4)  # ": " and the end of the line

    def on_headers_complete(self) -> None:
        self._stop_timer()
        self._unparsed = 0
        crowded = max(len(self.connections), len(self.tasks)) >= MAX_CONNECTIONS
        self.app = _busy if crowded else self.config.loaded_app
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._unparsed = 0
        super().on_body(body)

    def send_400_response(self, msg: str) -> None:
        """Refuse a request that the parser could not read, or that `_count` made it give up."""
        garbage = ApiError(400, f"this is not an HTTP request: {msg}", code="invalid_http")
        self._refuse(TOO_LONG if self._bytes > MAX_HEADER_BYTES else garbage)

    def _refuse(self, error: ApiError) -> None:
        """Answer with an error, and close the connection once the client has stopped sending, or soon."""
        if self.cycle is not None and not self.cycle.response_complete:  # its answer would be garbled
            self.transport.abort()
            return
        self._refused, self._unparsed = True, 0
        body = json.dumps(error.body).encode()
        self.transport.write(
            f"HTTP/1.1 {error.status} {HTTPStatus(error.status).phrase}\r\ncontent-type: application/json\r\n"
            f"connection: close\r\nx-request-id: {new_id()}\r\ncontent-length: {len(body)}\r\n\r\n".encode()
            + body
        )
        self._stop_timer()
        if self.transport.can_write_eof():  # with unread bytes behind it, a closed socket would lose the answer
            self.transport.write_eof()
            self._timer = self.loop.call_later(LINGER_SECONDS, self.transport.abort)
        else:
            self.transport.close()

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._stuck is None:
            self._stuck = self.loop.call_later(UNREAD_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._stuck is not None:
            self._stuck.cancel()
            self._stuck = None

    def timeout_keep_alive_handler(self) -> None:
        if self.transport.get_write_buffer_size():  # closing would wait for the client
            self.transport.abort()
        super().timeout_keep_alive_handler()

    def _count(self, size: int) -> None:
        self._unparsed = 0
        self._bytes += size
        if self._bytes > MAX_HEADER_BYTES:
            raise ValueError(TOO_LONG)  # which ends the parser's work

    def _expect_headers(self) -> None:
        self._stop_timer()
        self._timer = self.loop.call_later(HEADER_SECONDS, self.transport.abort)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
