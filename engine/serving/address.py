"""Where an engine listens: a Unix socket or a TCP port, on this machine only, since frames are not encrypted.

A Unix socket is protected by its file mode. Any account of the machine can reach a TCP port, so an engine that listens
on one requires a token, a secret that it shares with its clients.
"""

from __future__ import annotations

import ipaddress
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from thothy_ai.engine.api.errors import InvalidRequestError
from thothy_ai.engine.api.inflight_log import SUFFIX

MAX_PATH_BYTES = 107  # sun_path holds 108 bytes, the last of them NUL


@dataclass(frozen=True, slots=True)
class UnixAddress:
    path: str

    def __str__(self) -> str:
        return f"unix://{self.path}"


@dataclass(frozen=True, slots=True)
class TcpAddress:
    """A port of a loopback address; the server picks one for port 0."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"tcp://{host}:{self.port}"


Address = UnixAddress | TcpAddress


def admissions_path(address: Address) -> Path | None:
    """The file next to a Unix socket in which its engine records begun requests; a TCP port has none."""
    return Path(address.path + SUFFIX) if isinstance(address, UnixAddress) else None


def admissions_at(url: str) -> Path | None:
    """`admissions_path` by URL; None also for an empty URL, when the engine does not listen."""
    return admissions_path(parse_address(url)) if url else None


def parse_address(url: str) -> Address:
    """`unix:///path/engine.sock` or `tcp://127.0.0.1:7878`; InvalidRequestError for anything else."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise InvalidRequestError(f"engine URL {url!r}: {error}") from error
    host, path = parts.hostname, parts.netloc + parts.path
    if parts.scheme == "unix":
        if not path or "\0" in path:
            raise InvalidRequestError(f"engine URL {url!r} names no path")
        if len(path.encode(errors="surrogatepass")) > MAX_PATH_BYTES:
            raise InvalidRequestError(f"engine URL {url!r}: a socket's path has at most {MAX_PATH_BYTES} bytes")
        return UnixAddress(path)
    if parts.scheme != "tcp" or not host or port is None:
        raise InvalidRequestError(f"engine URL {url!r}: it must be unix:///path or tcp://127.0.0.1:port")
    loopback = host == "localhost"
    with suppress(ValueError):  # a host name other than an address
        loopback = loopback or ipaddress.ip_address(host).is_loopback
    if not loopback:
        raise InvalidRequestError(f"engine URL {url!r}: the engine is reachable from its own machine only (127.0.0.1)")
    return TcpAddress(host, port)


def listen_address(url: str, token: str | None) -> Address:
    """Parse the address that an engine shall listen on; InvalidRequestError for a TCP port without a token."""
    address = parse_address(url)
    if isinstance(address, TcpAddress) and not token:
        raise InvalidRequestError(
            f"an engine at {url} needs a token, since any account of this machine can connect to a TCP port: set "
            "THOTHY_ENGINE_TOKEN to the same secret for the engine and its clients, or listen at unix:///path"
        )
    return address
