"""Where an engine listens: a Unix socket, or a TCP port of this machine. Frames are not encrypted, so nothing else."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from urllib.parse import urlsplit

from thothy_ai.engine.errors import InvalidRequestError

_MAX_PATH_BYTES = 107  # sun_path holds 108 bytes, the last of them NUL


@dataclass(frozen=True, slots=True)
class UnixAddress:
    """A socket file."""

    path: str

    def __str__(self) -> str:
        return f"unix://{self.path}"


@dataclass(frozen=True, slots=True)
class TcpAddress:
    """A port of a loopback address; 0 lets the server pick one."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"tcp://{host}:{self.port}"


Address = UnixAddress | TcpAddress


def parse_address(url: str) -> Address:
    """`unix:///path/engine.sock` or `tcp://127.0.0.1:7878`; InvalidRequestError for anything else."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise InvalidRequestError(f"engine URL {url!r}: {error}") from error
    match parts.scheme:
        case "unix":
            return _unix(url, parts.netloc + parts.path)
        case "tcp" if parts.hostname and port is not None:
            return _tcp(url, parts.hostname, port)
        case _:
            raise InvalidRequestError(f"engine URL {url!r}: it must be unix:///path or tcp://127.0.0.1:port")


def _unix(url: str, path: str) -> UnixAddress:
    if not path or "\0" in path:
        raise InvalidRequestError(f"engine URL {url!r} names no path")
    if len(path.encode(errors="surrogatepass")) > _MAX_PATH_BYTES:
        raise InvalidRequestError(f"engine URL {url!r}: a socket's path has at most {_MAX_PATH_BYTES} bytes")
    return UnixAddress(path)


def _tcp(url: str, host: str, port: int) -> TcpAddress:
    if host != "localhost" and not _is_loopback(host):
        raise InvalidRequestError(f"engine URL {url!r}: the engine is reachable from its own machine only (127.0.0.1)")
    return TcpAddress(host, port)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
