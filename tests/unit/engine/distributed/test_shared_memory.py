"""Frames arrive as they were written, in order, however the ring's end cuts in; a slow reader is waited for."""

from __future__ import annotations

import os
import random
import socket
import threading
from collections.abc import Iterator

import pytest

from tests.support.patience import PATIENCE
from thothy_ai.engine.distributed.shared_memory import FrameReader, FrameWriter, open_memory

CAPACITY = 1000


@pytest.fixture
def ends() -> Iterator[tuple[FrameWriter, FrameReader, socket.socket]]:
    memory = open_memory()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        reader = FrameReader(memory, CAPACITY, theirs)
        yield FrameWriter(memory, CAPACITY, ours, lambda: None), reader, ours
    os.close(memory)


Ends = tuple[FrameWriter, FrameReader, socket.socket]


def test_frames_of_all_sizes_pass_through_a_small_ring(ends: Ends) -> None:
    writer, reader, ours = ends
    draw = random.Random(3)
    sizes = [draw.choice([0, 1, 7, 8, 100, 499, CAPACITY]) for _ in range(300)]
    sent = [draw.randbytes(size) for size in sizes]
    received: list[bytes] = []

    def read() -> None:
        received.extend(bytes(frame) for frame in reader)

    thread = threading.Thread(target=read)
    thread.start()
    for frame in sent:
        writer.write(frame[:3], frame[3:])
    ours.shutdown(socket.SHUT_WR)  # as the end of the writer's process does
    thread.join(PATIENCE)
    assert received == sent


def test_a_frame_that_is_being_read_is_not_overwritten(ends: Ends) -> None:
    writer, reader, _ = ends
    writer.write(b"a" * 600)
    frames = iter(reader)
    first = next(frames)
    looks = 0

    def check() -> None:
        nonlocal looks
        looks += 1
        assert bytes(first) == b"a" * 600
        if looks == 3:
            raise TimeoutError

    writer._check = check
    with pytest.raises(TimeoutError):
        writer.write(b"b" * 600)
    assert looks == 3


def test_a_frame_that_never_fits_is_an_error(ends: Ends) -> None:
    with pytest.raises(ValueError, match="1001 bytes exceeds the ring's 1000"):
        ends[0].write(b"x" * (CAPACITY + 1))
