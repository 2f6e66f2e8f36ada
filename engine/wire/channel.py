"""A stream of msgpack arrays between two processes of this engine, over a socket pair."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import msgpack

_UNICODE = "surrogatepass"  # as in the clients' protocol: a refusal may quote a lone surrogate
_MAX_BYTES = 2**31 - 1  # of a message; both ends are this engine's, and each bounds what it sends
_READ_BYTES = 1 << 18

Message = list[Any]


class Channel:
    """One end. Any thread may send; one thread receives."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        self._sending = threading.Lock()
        self._stream = end.makefile("rb", buffering=0)
        self._messages = msgpack.Unpacker(
            self._stream, read_size=_READ_BYTES, max_buffer_size=_MAX_BYTES, unicode_errors=_UNICODE
        )

    def send(self, *parts: object) -> None:
        """Send a message; OSError if the other process has ended."""
        data = msgpack.packb(parts, unicode_errors=_UNICODE)
        with self._sending:
            self._socket.sendall(data)

    def __iter__(self) -> Iterator[Message]:
        """Messages as they arrive, until either process closes its end or dies."""
        while True:
            try:
                message: Message = self._messages.unpack()
            except (msgpack.OutOfData, OSError):
                return
            except ValueError:
                if self._stream.closed:
                    return
                raise
            yield message

    def close(self) -> None:
        """Close this end: neither process has more messages then."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._stream.close()
        self._socket.close()
