"""A real HTTP server on a free port of 127.0.0.1 that receives webhooks."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True, slots=True)
class Received:
    """One request."""

    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def message(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.body)
        return document


@dataclass
class Receiver:
    """What has come, and what is answered: `answer` is given each request, and returns a status."""

    url: str
    requests: list[Received] = field(default_factory=list)
    answer: Callable[[Received], int] = lambda _: 204
    headers: dict[str, str] = field(default_factory=dict)

    def messages(self) -> list[dict[str, Any]]:
        return [request.message for request in self.requests]


@contextmanager
def receiver() -> Iterator[Receiver]:
    made = Receiver("")

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            request = Received(self.path, dict(self.headers.items()), body)
            status = made.answer(request)
            made.requests.append(request)
            self.send_response(status)
            for name, value in made.headers.items():
                self.send_header(name, value)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Nothing."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        block_on_close = False

    with Server(("127.0.0.1", 0), Handler) as server:
        made.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield made
        finally:
            server.shutdown()
            thread.join()
