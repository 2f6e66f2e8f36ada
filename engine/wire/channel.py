"""A stream of messages between two processes of this engine, over a socket pair."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Generic, TypeVar

from thothy_ai.engine.wire.codec import Codec

S = TypeVar("S")
R = TypeVar("R")


class Channel(Generic[S, R]):
    """One end: sends messages of one codec and receives messages of another. Any thread may send, only one receives."""

    def __init__(self, end: socket.socket, sent: Codec[S], received: Codec[R]) -> None:
        self._socket, self._sent, self._received = end, sent, received
        self._sending = threading.Lock()
        self._stream = end.makefile("rb", buffering=1 << 18)

    def send(self, message: S) -> None:
        """OSError if the other process has ended; ProtocolError for a message that cannot be packed."""
        data = self._sent.encode(message)
        with self._sending:
            self._socket.sendall(data)

    def __iter__(self) -> Iterator[R]:
        """Messages as they arrive, until either process closes its end or dies."""
        while True:
            try:
                message = self._received.read(self._stream)
            except OSError:
                return
            except ValueError:
                if self._stream.closed:
                    return
                raise
            if message is None:
                return
            yield message

    def close(self) -> None:
        """Close this end; then no messages pass in either direction."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._stream.close()
        self._socket.close()
