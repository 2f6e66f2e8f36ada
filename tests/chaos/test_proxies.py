"""Proxies forward everything both ways, in order; with a delay when slow; cut connections end."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from tests.support.patience import PATIENCE
from thothy_ai.chaos import proxies as proxies_module
from thothy_ai.chaos.proxies import Proxies


@pytest.fixture
def echo() -> Iterator[tuple[str, int]]:
    """A server that says everything back."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                talk, _ = listener.accept()
            except OSError:
                return
            with talk:
                while data := talk.recv(65536):
                    talk.sendall(data)

    thread = threading.Thread(target=serve)
    thread.start()
    yield listener.getsockname()
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join()


def ask(talk: socket.socket, data: bytes) -> float:
    """Seconds until all of it is back."""
    began = time.monotonic()
    threading.Thread(target=talk.sendall, args=(data,)).start()
    back = b""
    while len(back) < len(data):
        back += talk.recv(65536)
    assert back == data
    return time.monotonic() - began


def has_ended(talk: socket.socket) -> bool:
    try:
        return talk.recv(1) == b""
    except ConnectionError:
        return True


def test_what_goes_in_comes_out_later_when_the_proxy_is_slow(echo: tuple[str, int]) -> None:
    with Proxies() as proxies, socket.create_connection(("127.0.0.1", proxies.open(echo)), timeout=PATIENCE) as talk:
        assert ask(talk, bytes(range(256)) * 4000) > 0
        proxies.delay = 0.2
        assert ask(talk, b"slowly") >= 0.2
        assert ask(talk, bytes(range(256)) * 4000) >= 0.2


def test_a_cut_connection_ends_and_a_new_one_can_be_made(echo: tuple[str, int]) -> None:
    with Proxies() as proxies:
        port = proxies.open(echo)
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as talk:
            ask(talk, b"before")
            proxies.cut()
            assert has_ended(talk)
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as talk:
            ask(talk, b"after")


def test_a_server_that_is_away_looks_like_one() -> None:
    with socket.socket() as held, Proxies() as proxies:
        held.bind(("127.0.0.1", 0))  # nothing listens there, and nothing else can
        port = proxies.open(held.getsockname())
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as talk:
            assert has_ended(talk)


def test_what_a_server_says_last_arrives_and_a_worker_may_still_write(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise asyncio, in a worker that writes before it reads, would discard what has arrived."""
    monkeypatch.setattr(proxies_module, "LINGER_SECONDS", 60.0)
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        Proxies() as proxies,
        socket.create_connection(("127.0.0.1", proxies.open(listener.getsockname())), timeout=PATIENCE) as talk,
    ):
        listener.settimeout(PATIENCE)
        server, _ = listener.accept()
        with server:
            server.sendall(b"last words")
        assert b"".join(iter(lambda: talk.recv(65536), b"")) == b"last words"
        talk.sendall(b"late")
        time.sleep(0.1)  # for a refusal to arrive
        talk.sendall(b"later")
