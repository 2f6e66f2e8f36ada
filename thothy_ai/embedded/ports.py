"""`reserved_ports`: a range of TCP ports for the metrics of one stack, which no other stack chooses meanwhile."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from thothy_ai.embedded.process import is_free


@contextmanager
def reserved_ports(firsts: Iterable[int], count: int) -> Iterator[int | None]:
    """The first of `firsts` from which on so many TCP ports of 127.0.0.1 are free, if there is one; for the block.

    The last port of the range is held, and belongs to nobody else: of two stacks that start at the same moment, one
    holds it, and the other passes on to the next range. Its processes use the ports before it.
    """
    for first in firsts:
        with socket.socket() as held:
            if _holds(held, first + count - 1) and all(map(is_free, range(first, first + count - 1))):
                yield first
                return
    yield None


def _holds(held: socket.socket, port: int) -> bool:
    try:
        held.bind(("127.0.0.1", port))
    except OSError:
        return False
    return True
