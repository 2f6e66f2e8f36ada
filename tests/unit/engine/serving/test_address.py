"""Addresses of an engine: sockets, and ports of its own machine."""

from __future__ import annotations

import pytest

from thothy_ai.engine.api.errors import InvalidRequestError
from thothy_ai.engine.serving.address import TcpAddress, UnixAddress, parse_address


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("unix:///run/engine.sock", UnixAddress("/run/engine.sock")),
        ("unix://relative/engine.sock", UnixAddress("relative/engine.sock")),
        ("tcp://127.0.0.1:7878", TcpAddress("127.0.0.1", 7878)),
        ("tcp://localhost:0", TcpAddress("localhost", 0)),
        ("tcp://[::1]:5", TcpAddress("::1", 5)),
    ],
)
def test_addresses(url: str, address: object) -> None:
    assert parse_address(url) == address
    assert str(address) == url


@pytest.mark.parametrize(
    "url",
    [
        "",
        "/run/engine.sock",
        "http://127.0.0.1:80",
        "tcp://0.0.0.0:7878",
        "tcp://10.0.0.7:7878",
        "tcp://example.com:7878",
        "tcp://127.0.0.1",
        "tcp://127.0.0.1:port",
        "tcp://127.0.0.1:99999",
        "unix://",
        "unix:///" + "x" * 120,
        "tcp://[::1",
    ],
)
def test_other_addresses_are_refused(url: str) -> None:
    with pytest.raises(InvalidRequestError):
        parse_address(url)
