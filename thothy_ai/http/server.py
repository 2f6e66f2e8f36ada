"""`thothy serve`: the door's process."""

from __future__ import annotations

import asyncio
import gc
import ipaddress
import logging
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from thothy_ai.db.schema import refuse_other_schema
from thothy_ai.errors import ConfigError
from thothy_ai.http.access import Everybody
from thothy_ai.http.app import make_app
from thothy_ai.http.directory import Registered, Single
from thothy_ai.http.engines import Directory, Fleet
from thothy_ai.settings import Settings
from thothy_ai.telemetry import configure_logging, serve_metrics

log = logging.getLogger(__name__)

HEADER_SECONDS = 10.0  # for a request's headers to arrive, once it has begun
MAX_HEADER_BYTES = 64 * 1024
KEEP_ALIVE_SECONDS = 75  # of an idle connection: more than the proxies in front keep one
FINISH_SECONDS = 30  # for answers that are being written when the door is stopped
MAX_CONNECTIONS = 10_000


def main(settings: Settings, *, without_keys: bool = False) -> None:
    """Serve until SIGTERM. Raises `ConfigError` for an address that other machines may reach, unless `without_keys`
    says that anyone may use it.
    """
    configure_logging(settings)
    if not without_keys:
        _refuse_open_address(settings.http_host)
    directory: Directory
    if settings.database_url is None:
        directory = Single(settings)
    else:
        refuse_other_schema(settings)
        directory = Registered(settings)
    serve_metrics(settings)
    fleet = Fleet(directory, settings.interactive_share, settings.reveal_engine_token())
    gc.collect()
    gc.freeze()  # what is imported stays: the collector need not traverse it again
    make_server(make_app(fleet, Everybody(settings.tenant)), settings.http_host, settings.http_port).run()


def make_server(app: ASGIApp, host: str, port: int) -> uvicorn.Server:
    """The server, not started; its connections, headers and times are bounded."""
    return uvicorn.Server(
        uvicorn.Config(
            app,
            host,
            port,
            loop="uvloop",
            http=BoundedProtocol,
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=FINISH_SECONDS,
            limit_concurrency=MAX_CONNECTIONS,
            backlog=2048,
        )
    )


def _refuse_open_address(host: str) -> None:
    try:
        private = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        private = False
    if not private:
        raise ConfigError(
            f"other machines may reach {host}, and anyone there could use the engines: listen on 127.0.0.1, or allow it"
            " with --no-keys"
        )


class BoundedProtocol(HttpToolsProtocol):
    """A connection that ends if the headers of a request are too long, or take too long to arrive."""

    _bytes = 0
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._expect_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._bytes = 0
        self._expect_headers()

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        self._count(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        super().on_header(name, value)
        self._count(len(name) + len(value))

    def on_headers_complete(self) -> None:
        self._stop_timer()
        super().on_headers_complete()

    def _count(self, size: int) -> None:
        self._bytes += size
        if self._bytes > MAX_HEADER_BYTES:
            self.transport.abort()

    def _expect_headers(self) -> None:
        self._stop_timer()
        self._timer = self.loop.call_later(HEADER_SECONDS, self.transport.abort)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
