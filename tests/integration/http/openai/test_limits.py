"""Bounds of bodies, headers and waits."""

from __future__ import annotations

import http.client
import json
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from urllib.parse import urlsplit

import pytest

from tests.support.answering_backend import AnsweringBackend
from tests.support.openai_requests import chat, post
from tests.support.patience import PATIENCE
from tests.support.queue_bench import eventually


def test_bodies_and_headers_are_bounded(address: str) -> None:
    large = post(address, "chat/completions", chat(messages=[{"role": "user", "content": "x" * 17_000_000}]))
    assert (large.status_code, large.json()["error"]["code"]) == (413, "request_too_large")
    parts = urlsplit(address)
    connection = http.client.HTTPConnection(parts.netloc, timeout=PATIENCE)
    connection.request("GET", "/v1/models", headers={"x-long": "x" * 100_000})
    answer = connection.getresponse()
    assert (answer.status, json.load(answer)["error"]["code"]) == (431, "headers_too_large")
    connection.close()


def test_a_client_that_sends_all_before_it_reads_is_told(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a connection that is closed with unread bytes in it, such a client would see the reset, and no answer."""
    monkeypatch.setattr("thothy_ai.http.asgi.LINGER_SECONDS", PATIENCE)
    connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=PATIENCE)
    connection.request("POST", "/v1/chat/completions", b" " * 60_000_000, {"content-type": "application/json"})
    answer = connection.getresponse()
    assert (answer.status, json.load(answer)["error"]["code"]) == (413, "request_too_large")
    connection.close()


def test_the_bodies_of_all_requests_are_bounded(
    address: str, backend: AnsweringBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("thothy_ai.http.asgi.MAX_HELD", 1_000)
    large = chat(messages=[{"role": "user", "content": "x" * 600}])
    backend.hang = True
    with ThreadPoolExecutor() as pool:
        first = pool.submit(post, address, "chat/completions", large)
        eventually(lambda: len(backend.open) == 1)
        busy = post(address, "chat/completions", large)
        assert (busy.status_code, busy.json()["error"]["code"]) == (503, "server_busy")
        assert "connection" not in busy.headers  # its body was read, and left
        backend.finish_all("one")
        assert first.result().status_code == 200
    backend.hang = False
    assert post(address, "chat/completions", large).status_code == 200


def test_slow_headers_end_the_connection(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("thothy_ai.http.server.HEADER_SECONDS", 0.2)
    parts = urlsplit(address)
    with socket.create_connection((parts.hostname, parts.port), timeout=PATIENCE) as raw:
        raw.sendall(b"GET /v1/models HTTP/1.1\r\nhost: localhost\r\n")
        with suppress(ConnectionResetError):
            assert raw.recv(100) == b""


def test_a_slow_body_is_refused(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("thothy_ai.http.asgi.BODY_SECONDS", 0.2)
    parts = urlsplit(address)
    with socket.create_connection((parts.hostname, parts.port), timeout=PATIENCE) as raw:
        raw.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n")
        raw.sendall(b"content-length: 100\r\n\r\n{")
        assert b"408" in raw.recv(1_000).split(b"\r\n")[0]
        raw.settimeout(PATIENCE)
        with suppress(ConnectionResetError):
            while raw.recv(1_000):  # it is closed
                pass


def test_other_content_types_are_refused(address: str, backend: AnsweringBackend) -> None:
    """A web page may post them without asking first."""
    for kind in ("text/plain", "application/x-www-form-urlencoded", ""):
        answer = post(address, "chat/completions", chat(), headers={"content-type": kind})
        assert (answer.status_code, answer.json()["error"]["code"]) == (415, "unsupported_media_type")
    zipped = post(address, "chat/completions", chat(), headers={"content-encoding": "gzip"})
    assert (zipped.status_code, zipped.json()["error"]["code"]) == (415, "unsupported_media_type")
    assert not backend.requests
    with_charset = {"content-type": "application/json; charset=utf-8"}
    assert post(address, "chat/completions", chat(), headers=with_charset).is_success
