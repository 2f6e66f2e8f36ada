"""`Readiness`: checks from outside whether a process of the service is ready.

An engine listens once its model is loaded, and is ready once it is recorded in Postgres, since it gets no jobs before.
The dispatcher and the reaper are ready once they are connected to Postgres, the door once it listens. A worker is ready
once it waits for messages or has claimed jobs (a full worker does not wait for messages).
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from contextlib import suppress
from urllib.parse import urlsplit

import psycopg
from redis import Redis
from redis.exceptions import RedisError

from thothy_ai.embedded.postgres import Postgres
from thothy_ai.embedded.process import accepts
from thothy_ai.embedded.valkey import Valkey
from thothy_ai.errors import ServiceStartError
from thothy_ai.settings import Settings

ENGINE_READY_SECONDS = 900  # a large model is read from a slow disk
RECORDED_SECONDS = 120  # for the registrar of a listening engine; the machine may be busy


class Readiness:
    """Checks the sockets, sessions and blocked clients of one stack."""

    def __init__(
        self, postgres: Postgres, valkey: Valkey, settings: Settings, workers: int = 1, *, engines: bool = True
    ) -> None:
        """`workers` start together, and count as ready once all are. `engines`: whether the stack has engines."""
        self._postgres = postgres
        self._valkey = valkey
        self._settings = settings
        self._workers = workers
        self._engines = engines
        self._listens_since: float | None = None

    def of(self, service: str, settings: Settings | None = None) -> Callable[[], bool]:
        """The readiness check of this service. `settings` belong to one of several engines."""
        url = (settings or self._settings).engine_url
        checks = {
            "engine": lambda: url is not None and self._engine(url),
            "worker": self._worker,
            "serve": lambda: accepts(self._settings.http_host, self._settings.http_port),
        }
        return checks.get(service, lambda: self._connected(service))

    def _worker(self) -> bool:
        clients = []  # in case Valkey does not answer
        with suppress(RedisError), Redis.from_url(self._valkey.url, socket_timeout=2) as client:
            clients = list(client.client_list())
        subscribed = sum(int(client["sub"]) > 0 for client in clients)  # a worker subscribes when it begins to run jobs
        if not self._engines:  # without an engine, workers have no list to wait at
            return subscribed >= self._workers
        if self._workers > 1 and subscribed < self._workers:
            return False
        waits_for_messages = any(client["cmd"] == "brpop" for client in clients)
        return waits_for_messages or self._connected("worker")

    def _engine(self, url: str) -> bool:
        """Whether the engine is ready. Raises `ServiceStartError` if it has listened for long without a record."""
        if not engine_listens(url):
            return False
        with suppress(psycopg.Error):
            if url in self._postgres.ready_engines(self._settings.database_schema):
                return True
        now = time.monotonic()
        self._listens_since = self._listens_since or now
        if now - self._listens_since > RECORDED_SECONDS:
            raise ServiceStartError(f"the engine at {url} serves, but is not recorded in Postgres: its log says why")
        return False

    def _connected(self, service: str) -> bool:
        try:
            return f"{self._settings.database_schema}-{service}" in self._postgres.sessions()
        except psycopg.Error:
            return False


def engine_listens(url: str) -> bool:
    """Whether an engine listens at this URL, as it does once its model is loaded."""
    parts = urlsplit(url)
    if parts.hostname and parts.port:
        return accepts(parts.hostname, parts.port)
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(1)
        return probe.connect_ex(parts.path) == 0
