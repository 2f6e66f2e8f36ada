"""Frames from one process to another over shared memory: a ring, and a socket that wakes the reader.

The writer puts a frame into the ring and sends its position over the socket; the reader records in the ring how far it
has read. A frame is copied once, into the ring.
"""

from __future__ import annotations

import mmap
import os
import socket
import struct
import time
from collections.abc import Callable, Iterator

import numpy as np

_NOTICE = struct.Struct("<qq")  # a frame's begin, counted from the first frame's, and its length
_HEADER = mmap.PAGESIZE  # bytes before the ring; they begin with the reader's position
_ALIGNMENT = 8
_POLL_SECONDS = 1e-4


def open_memory() -> int:
    """A file descriptor of empty memory that can be shared with other processes."""
    return os.memfd_create("thothy-steps", os.MFD_CLOEXEC)


class _Ring:
    def __init__(self, file: int, capacity: int) -> None:
        os.ftruncate(file, _HEADER + capacity)
        mapped = mmap.mmap(file, _HEADER + capacity)
        self.read = np.frombuffer(mapped, np.int64, 1)
        self.bytes, self.capacity = memoryview(mapped)[_HEADER:], capacity


class FrameWriter:
    """Writes to a reader, which must exist already, with the same `file` and `capacity` and the other end of `notices`.

    `check` is called while a slow reader is waited for, and can raise.
    """

    def __init__(self, file: int, capacity: int, notices: socket.socket, check: Callable[[], None]) -> None:
        self._ring, self._notices, self._check = _Ring(file, capacity), notices, check
        self._written = 0

    def write(self, *parts: bytes) -> None:
        """Write one frame of these parts; OSError if the reader has ended, ValueError if it exceeds the ring."""
        length, capacity = sum(map(len, parts)), self._ring.capacity
        if length > capacity:
            raise ValueError(f"a frame of {length} bytes exceeds the ring's {capacity}")
        begin = -(-self._written // _ALIGNMENT) * _ALIGNMENT
        if begin % capacity + length > capacity:  # a frame must be contiguous
            begin = -(-begin // capacity) * capacity
        # Once all is read, the gap before the ring's end is free as well.
        while (read := int(self._ring.read[0])) < self._written and begin + length - read > capacity:
            self._check()
            time.sleep(_POLL_SECONDS)
        place = begin % capacity
        for part in parts:
            self._ring.bytes[place : place + len(part)] = part
            place += len(part)
        self._written = begin + length
        self._notices.sendall(_NOTICE.pack(begin, length))


class FrameReader:
    """Reads the frames that a `FrameWriter` of another process writes, in their order."""

    def __init__(self, file: int, capacity: int, notices: socket.socket) -> None:
        self._ring, self._notices = _Ring(file, capacity), notices
        self._ring.read[0] = 0

    def __iter__(self) -> Iterator[memoryview]:
        """Yield frames, each valid until the next is requested, until the writer's process ends."""
        while len(notice := self._notices.recv(_NOTICE.size, socket.MSG_WAITALL)) == _NOTICE.size:
            begin, length = _NOTICE.unpack(notice)
            place = begin % self._ring.capacity
            yield self._ring.bytes[place : place + length]
            self._ring.read[0] = begin + length
