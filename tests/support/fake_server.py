"""A server with OpenAI's API on a thread of this process, which does what the test says, be it wrong."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Events = Iterator[Any]  # JSON of events; None cuts the connection, an Event is waited for
Reply = tuple[int, Any] | Events
WAITING = b": waiting\n\n"
MODELS = {"data": [{"id": "org/Model-8B", "max_model_len": 4096}]}


class FakeServer:
    """`answer` gives a status and a JSON body, or events. Requests are kept."""

    def __init__(self, answer: Callable[[str, Mapping[str, Any]], Reply]) -> None:
        self.answer = answer
        self.models: Any = MODELS
        self.headers: dict[str, str] = {}  # of answers that are no events
        self.requests: list[tuple[str, dict[str, Any]]] = []
        self.keys: set[str | None] = set()
        self.gone = threading.Event()  # a client left in the middle of events
        self.url = ""


def chunk(text: str = "", finish: str | None = None, **more: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": finish}], **more}


def usage(prompt: int, output: int) -> dict[str, Any]:
    return {"choices": [], "usage": {"prompt_tokens": prompt, "completion_tokens": output}}


def message(text: str, **more: Any) -> tuple[int, Any]:
    """A whole answer."""
    choice = {"index": 0, "message": {"content": text}, "finish_reason": "stop", **more}
    return 200, {"choices": [choice], "usage": {"prompt_tokens": 5, "completion_tokens": 3}}


def refused(says: str, status: int = 400) -> tuple[int, Any]:
    return status, {"error": {"message": says, "code": status}}


class Handler(BaseHTTPRequestHandler):
    fake: FakeServer
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        self.fake.keys.add(self.headers.get("authorization"))
        self._answer(200, self.fake.models)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.fake.requests.append((self.path, body))
        reply = self.fake.answer(self.path.removeprefix("/v1"), body)
        if isinstance(reply, tuple):
            self._answer(*reply)
            return
        try:
            self._stream(reply)
        except ConnectionError:
            self.fake.gone.set()

    def _answer(self, status: int, data: Any) -> None:
        body = json.dumps(data).encode()
        self.send_response(status)
        for name, value in {**self.fake.headers, "content-type": "application/json"}.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _stream(self, events: Events) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        for event in events:
            if event is None:
                return
            while isinstance(event, threading.Event) and not event.wait(0.02):
                self.wfile.write(WAITING)  # the second one to a closed connection fails
            data = event if isinstance(event, str) else json.dumps(event)
            self.wfile.write(f"data: {data}\n\n".encode())
        self.wfile.write(b"data: [DONE]\n\n")


@contextmanager
def running(fake: FakeServer) -> Iterator[FakeServer]:
    handler = type("Handler", (Handler,), {"fake": fake})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    fake.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    try:
        yield fake
    finally:
        server.shutdown()
        server.server_close()
        thread.join(60)
