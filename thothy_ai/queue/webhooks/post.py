"""Sends one POST and returns its result: one connection to a checked address, no redirects, little of the answer.

`http.client`, because it lets the caller connect: libraries above it resolve the name themselves, after the check.
"""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from urllib.parse import urlsplit

from thothy_ai.errors import InvalidJobError
from thothy_ai.queue.webhooks.addresses import Network, RefusedAddressError, checked_url, resolve

CONNECT_SECONDS = 5.0
TOTAL_SECONDS = 15.0  # of sending and reading: a receiver that takes longer should answer first
MAX_ADDRESSES = 3  # addresses tried per host
READ_BYTES = 1024  # of an answer
SHOWN_CHARS = 200
GONE = 410
_tls = cache(ssl.create_default_context)


@dataclass(frozen=True, slots=True)
class PostResult:
    """The result of a POST. `final`: another try would end in the same way."""

    status: int | None = None
    error: str | None = None
    final: bool = False

    @property
    def delivered(self) -> bool:
        """Whether the receiver accepted the message."""
        return self.status is not None and 200 <= self.status < 300


def post(url: str, body: bytes, headers: Mapping[str, str], allowed: Sequence[Network]) -> PostResult:
    """POST this body. Never raises: the result describes errors, without the URL's query, which can hold secrets."""
    try:
        parts = urlsplit(checked_url(url))
        host, tls = parts.hostname or "", parts.scheme == "https"
        port = parts.port or (443 if tls else 80)
        connection = (http.client.HTTPSConnection if tls else http.client.HTTPConnection)(host, port)
        with closing(_connected(resolve(host, port, allowed)[:MAX_ADDRESSES], port)) as plain, _limited(plain):
            connection.sock = _tls().wrap_socket(plain, server_hostname=host) if tls else plain
            with closing(connection):
                path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
                connection.request("POST", path, body, dict(headers))
                response = connection.getresponse()
                start = response.read(READ_BYTES).decode("utf-8", "replace")
                if 200 <= response.status < 300:
                    return PostResult(response.status)
                said = "".join(char if char.isprintable() else " " for char in start)[:SHOWN_CHARS]
                error = f"HTTP {response.status} {said}".strip()
                return PostResult(response.status, error, final=response.status == GONE)
    except (RefusedAddressError, InvalidJobError) as error:
        return PostResult(error=str(error), final=True)
    except (OSError, http.client.HTTPException, ValueError) as error:
        return PostResult(error=f"{type(error).__name__}: {error}"[:SHOWN_CHARS])


def _connected(addresses: Sequence[str], port: int) -> socket.socket:
    """A connection to the first address that takes one. Raises the last one's `OSError`."""
    for address in addresses[:-1]:
        with suppress(OSError):
            return socket.create_connection((address, port), CONNECT_SECONDS)
    return socket.create_connection((addresses[-1], port), CONNECT_SECONDS)


@contextmanager
def _limited(plain: socket.socket) -> Iterator[None]:
    """Shut the socket down after `TOTAL_SECONDS`: a timeout of its own counts from each byte.

    Raises `TimeoutError`, since to a reader the shutdown looks like the peer's end of the connection.
    """
    seconds, over = TOTAL_SECONDS, threading.Event()

    def shut_down(same: socket.socket) -> None:
        over.set()
        with suppress(OSError):
            same.shutdown(socket.SHUT_RDWR)

    plain.settimeout(seconds)
    with plain.dup() as same:
        timer = threading.Timer(seconds, shut_down, (same,))
        timer.daemon = True
        timer.start()
        try:
            yield
        except (OSError, http.client.HTTPException) as error:
            if over.is_set() or isinstance(error, TimeoutError):
                raise TimeoutError(f"no complete answer within {seconds:g} s") from None
            raise
        finally:
            timer.cancel()
