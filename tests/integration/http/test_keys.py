"""Who may use the door: keys, scopes, hosts, and what is refused before the application sees it."""

from __future__ import annotations

import logging
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import openai
import pytest
from openai import OpenAI
from sqlalchemy import Engine, text

from tests.support.answering_backend import AnsweringBackend
from tests.support.door import served_door
from tests.support.keyed_requests import HELLO, ROUTE, ask, code, made
from tests.support.patience import PATIENCE
from tests.support.queue_bench import eventually
from tests.support.served_engine import served
from tests.support.tls import Authority
from thothy_ai.db.api_keys import UNLIMITED, create_key, id_of, list_keys, revoke_key
from thothy_ai.errors import ConfigError, DatabaseUnreachableError, PastExpiryError
from thothy_ai.http import keys
from thothy_ai.http.access import Everybody
from thothy_ai.http.keys import Keys
from thothy_ai.http.server import BoundedProtocol, main
from thothy_ai.settings import Settings


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "READ_SECONDS", 0.1)


@pytest.fixture
def access(own: Settings, engine: Engine) -> Keys:
    return Keys(own, engine, Everybody("tenant", ()))


@pytest.fixture
def address(backend: AnsweringBackend, own: Settings, access: Keys) -> Iterator[str]:
    with served(backend, own.engine_url or ""), served_door(own, access=access) as address:
        yield address


@pytest.mark.parametrize("ago", [timedelta(), timedelta(days=400)])
def test_a_key_that_would_have_expired_already_is_not_made(engine: Engine, ago: timedelta) -> None:
    with engine.connect() as connection:
        expires_at = connection.execute(text("SELECT now()")).scalar_one() - ago
    with pytest.raises(PastExpiryError, match="in the past"):
        create_key(engine, "tenant", ["read"], UNLIMITED, name="", expires_at=expires_at)
    with engine.connect() as connection:
        assert list_keys(connection) == []


def test_keys_are_needed_once_there_is_one(address: str, backend: AnsweringBackend, engine: Engine) -> None:
    assert ask(address).status_code == 200
    assert ask(address, "anything").status_code == 200
    assert backend.requests[-1].salt == "tenant"
    key = made(engine)
    eventually(lambda: ask(address).status_code == 401)
    new = made(engine, "beta")  # a new key counts at once
    assert ask(address, new).status_code == 200
    assert backend.requests[-1].salt == "beta"
    with OpenAI(base_url=f"{address}/v1", api_key=key, max_retries=0, _strict_response_validation=True) as client:
        assert client.models.list().data[0].id == "answering"
    with (
        OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0) as client,
        pytest.raises(openai.AuthenticationError) as wrong,
    ):
        client.models.list()
    assert (wrong.value.code, wrong.value.type) == ("invalid_api_key", "invalid_request_error")
    assert wrong.value.response.headers["www-authenticate"] == "Bearer"
    assert wrong.value.request_id


def test_wrong_keys_are_refused_and_never_logged(
    address: str, engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    key = made(engine)
    eventually(lambda: ask(address).status_code == 401)
    wrong = [
        "x", key[:-1], key[:-1] + ("0" if key[-1] != "0" else "1"), f"{key}0", f"thothy_{'0' * 12}_{'0' * 64}",
        key.upper(), f"{key} {key}",
    ]  # fmt: skip
    with caplog.at_level(logging.DEBUG):
        for each in wrong:
            assert code(ask(address, each)) == (401, "invalid_api_key")
        for scheme in ("Basic", "Token", ""):
            assert code(ask(address, authorization=f"{scheme} {key}".strip())) == (401, "invalid_api_key")
        twice = httpx.get(f"{address}/v1/models", headers=[("authorization", f"Bearer {key}")] * 2)
        assert code(twice) == (400, "invalid_header")
    ours = [record.getMessage() for record in caplog.records if not record.name.startswith("httpcore")]
    assert len([message for message in ours if message.startswith("denied")]) >= len(wrong) + 3
    assert not any(secret in message for secret in (key[-20:], key[20:40]) for message in ours)
    assert ask(address, authorization=f"bearer  {key}").status_code == 200


def test_scopes_and_ends(address: str, engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    reader = made(engine, scopes=("read",))
    eventually(lambda: ask(address).status_code == 401)
    assert code(ask(address, reader)) == (403, "insufficient_permissions")
    assert id_of(reader) in caplog.text
    assert ask(address, made(engine, scopes=("admin",))).status_code == 200
    assert httpx.get(f"{address}/v1/models", headers={"authorization": f"Bearer {reader}"}).status_code == 200
    short = made(engine)
    with engine.begin() as connection:
        connection.execute(
            text("UPDATE api_key SET expires_at = now() - interval '1 s' WHERE id = :id"), {"id": id_of(short)}
        )
    # The door may have read the key before it was changed, and reads it again within seconds.
    eventually(lambda: "expired" in ask(address, short).text)


@pytest.mark.parametrize(
    ("route", "stream"), [("chat/completions", True), ("chat/completions", False), ("responses", True)]
)
def test_a_revoked_key_ends_what_runs_under_it(
    address: str, backend: AnsweringBackend, engine: Engine, route: str, stream: bool
) -> None:
    key, other = made(engine), made(engine)
    eventually(lambda: ask(address).status_code == 401)
    backend.hang = True
    answers: list[httpx.Response] = []

    def request(key: str) -> None:
        headers = {"authorization": f"Bearer {key}"}
        said = {"input": "hello"} if route == "responses" else {"messages": HELLO["messages"]}
        body = {"model": "answering", "stream": stream, **said}
        answers.append(httpx.post(f"{address}/v1/{route}", json=body, headers=headers, timeout=PATIENCE))

    threads = [threading.Thread(target=request, args=(each,)) for each in (key, other)]
    for thread in threads:
        thread.start()
    eventually(lambda: len(backend.open) == 2)
    revoke_key(engine, id_of(key) or "")
    threads[0].join(PATIENCE)
    [ended] = answers
    assert '"code":"invalid_api_key"' in ended.text.replace(": ", ":")
    assert (ended.status_code, "[DONE]" in ended.text) == (200 if stream else 401, False)
    assert route != "responses" or "event: error\ndata: {" in ended.text
    assert backend.aborted.wait(PATIENCE)
    eventually(lambda: len(backend.open) == 1)
    backend.finish_all("x")
    threads[1].join(PATIENCE)
    assert answers[1].status_code == 200
    assert code(ask(address, key)) == (401, "invalid_api_key")


def test_known_keys_go_on_without_postgres_for_a_while(
    address: str, access: Keys, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = made(engine)
    eventually(lambda: ask(address).status_code == 401)
    read = threading.Event()

    def away() -> Any:
        read.set()
        raise DatabaseUnreachableError("Postgres is away")

    with monkeypatch.context() as patch:
        patch.setattr(access, "look", away)
        assert read.wait(PATIENCE)  # what was read before has been kept
        new = made(engine)
        assert code(ask(address, new)) == (503, "keys_unavailable")
        assert ask(address, key).status_code == 200
        patch.setattr(keys, "KNOWN_SECONDS", 0.0)
        late = ask(address, key)
        assert code(late) == (503, "keys_unavailable")
        assert "retry-after" in late.headers
    eventually(lambda: ask(address, new).status_code == 200)


def test_without_keys_requests_go_on_without_postgres(
    address: str, access: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away() -> Any:
        raise DatabaseUnreachableError("Postgres is away")

    monkeypatch.setattr(access, "look", away)
    monkeypatch.setattr(keys, "KNOWN_SECONDS", 0.0)
    assert ask(address).status_code == 200


def test_a_slow_body_is_refused_by_every_route(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("thothy_ai.http.asgi.BODY_SECONDS", 0.2)
    with connected(address) as raw:
        raw.sendall(b"POST /v1/batches HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n")
        raw.sendall(b"content-length: 100\r\n\r\n{")
        head = until_closed(raw)
    assert head.startswith(b"HTTP/1.1 408 ")
    assert b"connection: close" in head


def test_hosts_of_requests_without_a_key(address: str, engine: Engine) -> None:
    for host in (
        "evil.example",
        "localhost.evil.example",
        "127.0.0.1.evil.example:80",
        "",
        ":8000",
        "[::1].evil",
        "a b",
    ):
        assert code(ask(address, host=host)) == (403, "host_not_allowed"), host
    for host in ("localhost", "LOCALHOST:1", "127.0.0.1:8000", "[::1]:8000", "a.localhost", "localhost.", "10.0.0.7"):
        assert ask(address, host=host).status_code == 200, host
    key = made(engine)
    eventually(lambda: ask(address, key, host="gpu-box:8000").status_code == 200)
    assert ask(address, key, origin="https://ours.example").status_code == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"origin": "https://evil.example", "sec-fetch-site": "cross-site"}, 403),
        ({"origin": "http://localhost:3000", "sec-fetch-site": "same-site"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://door.localhost:1", "sec-fetch-site": "same-origin"}, 200),  # a proxy changed the host
        ({"origin": "http://door.localhost"}, 200),
        ({"sec-fetch-site": "none"}, 200),
    ],
)
def test_pages_of_other_origins_may_only_read_without_a_key(address: str, headers: dict[str, str], status: int) -> None:
    answer = ask(address, host="door.localhost", **headers)
    assert answer.status_code == status
    assert status == 200 or code(answer) == (403, "origin_not_allowed")
    upload = httpx.post(f"{address}/v1/files", files={"file": b"x"}, headers={"host": "door.localhost"} | headers)
    assert upload.status_code == (403 if status == 403 else 400)  # a purpose is missing
    assert httpx.get(f"{address}/v1/models", headers=headers).status_code == 200


@contextmanager
def refused(settings: Settings, **changes: Any) -> Iterator[pytest.ExceptionInfo[ConfigError]]:
    with pytest.raises(ConfigError) as error:
        main(settings.model_copy(update=changes))
    yield error


def test_addresses_that_other_machines_reach_need_keys(own: Settings) -> None:
    for host in ("0.0.0.0", "::", "192.168.1.1", "gpu-box"):
        with refused(own, http_host=host) as error:
            assert "`thothy keys create`" in str(error.value)
        with refused(own, http_host=host, database_url=None):
            pass


def test_certificates(backend: AnsweringBackend, own: Settings, tmp_path: Path) -> None:
    authority = Authority(tmp_path / "tls")
    authority.server("door")
    certificate, key = tmp_path / "tls/door.pem", tmp_path / "tls/door.key"
    with refused(own, http_tls_certificate=tmp_path / "none.pem") as error:
        assert "none.pem" in str(error.value)
    with refused(own, http_tls_key=key) as error:
        assert "THOTHY_HTTP_TLS_CERTIFICATE is not" in str(error.value)
    with refused(own, http_tls_certificate=certificate):  # without its key
        pass
    secured = own.model_copy(update={"http_tls_certificate": certificate, "http_tls_key": key})
    trusted = ssl.create_default_context(cafile=str(authority.certificate))
    with served(backend, own.engine_url or ""), served_door(secured) as address:
        url = address.replace("http://127.0.0.1", "https://localhost")
        assert httpx.post(f"{url}{ROUTE}", json=HELLO, verify=trusted).is_success


def test_forwarded_addresses_only_from_named_proxies(
    backend: AnsweringBackend, own: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    forwarded = {"x-forwarded-for": "203.0.113.9", "host": "evil.example"}
    for proxies, seen in (((), "127.0.0.1"), (("10.0.0.0/8",), "127.0.0.1"), (("127.0.0.0/8",), "203.0.113.9")):
        caplog.clear()
        behind = own.model_copy(update={"http_proxies": proxies})
        with served_door(behind) as address:
            assert ask(address, **forwarded).status_code == 403
        assert f" at {seen}: " in caplog.text


@contextmanager
def connected(address: str) -> Iterator[socket.socket]:
    parts = urlsplit(address)
    with socket.create_connection((parts.hostname, parts.port), timeout=PATIENCE) as raw:
        yield raw


def until_closed(raw: socket.socket) -> bytes:
    seen = b""
    try:
        while data := raw.recv(65536):
            seen += data
    except ConnectionResetError:
        pass
    return seen


def test_what_is_not_http_has_the_envelope(address: str) -> None:
    with connected(address) as raw:
        raw.sendall(b"\x16\x03\x01 hello\r\n\r\n" + b"x" * 300_000)
        head, _, body = until_closed(raw).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert b"x-request-id: req_" in head
    assert b'"code": "invalid_http"' in body


def test_too_many_connections_are_told_so(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("thothy_ai.http.server.MAX_CONNECTIONS", 1)
    answer = ask(address)
    assert code(answer) == (503, "server_busy")
    assert int(answer.headers["retry-after"]) > 0


@pytest.mark.parametrize("begun", [b"", b"GET / HTTP/1.1\r\nh: x\r\n"])
def test_headers_that_do_not_come(address: str, monkeypatch: pytest.MonkeyPatch, begun: bytes) -> None:
    monkeypatch.setattr("thothy_ai.http.server.HEADER_SECONDS", 0.2)
    with connected(address) as raw:
        raw.sendall(begun)
        assert until_closed(raw) == b""


@pytest.mark.parametrize("begun", ["GET /", "GET / HTTP/1.1\r\nh: ", "GET / HTTP/1.1\r\n" + "h: x\r\n" * 30_000])
@pytest.mark.parametrize("end", ["", " HTTP/1.1\r\n\r\n"])
def test_headers_that_are_too_long_are_told_so(address: str, begun: str, end: str) -> None:
    with connected(address) as raw:
        raw.sendall(f"{begun}{'x' * 300_000}{end}".encode())
        head, _, body = until_closed(raw).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 431 Request Header Fields Too Large\r\n")
    assert b'"code": "headers_too_large"' in body


def test_stray_bytes_do_not_hold_a_connection(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("thothy_ai.http.server.HEADER_SECONDS", 1.0)  # of a client that waits for a core, too
    with connected(address) as raw:
        raw.sendall(b"GET /v1/models HTTP/1.1\r\nhost: localhost\r\n\r\n")
        assert raw.recv(12) == b"HTTP/1.1 200"
        raw.sendall(b"\r\n")
        assert b"answering" in until_closed(raw)


def test_clients_that_do_not_read_are_left(
    address: str, backend: AnsweringBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = threading.Event()

    def lost(protocol: BoundedProtocol, error: Exception | None) -> None:
        connection_lost(protocol, error)
        left.set()

    connection_lost = BoundedProtocol.connection_lost
    monkeypatch.setattr(BoundedProtocol, "connection_lost", lost)
    monkeypatch.setattr("thothy_ai.http.server.UNREAD_SECONDS", 0.3)
    backend.answer = lambda request: ["x" * 30_000_000]
    body = str(HELLO).replace("'", '"').encode()
    head = f"POST {ROUTE} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {len(body)}"
    with connected(address) as raw:
        raw.sendall(head.encode() + b"\r\n\r\n" + body)
        assert raw.recv(12) == b"HTTP/1.1 200"
        assert left.wait(PATIENCE)
        assert len(until_closed(raw)) < 30_000_000
