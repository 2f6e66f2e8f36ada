"""Reads tensors from files to a device, in large pieces on several threads, without a whole copy in host memory.

file ──preadv──▶ the tensor itself                              on a CPU
file ──preadv──▶ a pinned buffer ──▶ the tensor                 on a GPU: two buffers per thread, so that one is
                                                                filled while the other is copied
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from thothy_ai.engine.api.errors import ModelLoadError
from thothy_ai.engine.weights.shards import StoredTensor

PIECE_BYTES = 8 << 20  # per read
_MAX_THREADS = 16
_THREADS_PER_CORE = 2  # threads mostly wait for the disk


def num_threads() -> int:
    return min(_MAX_THREADS, _THREADS_PER_CORE * (os.cpu_count() or 1))


Arrived = Callable[[], None]  # makes the caller's stream wait for a piece


@dataclass(frozen=True, slots=True)
class PendingTensor:
    """A tensor whose pieces are being read."""

    tensor: Tensor
    pieces: tuple[Future[Arrived], ...]

    def result(self) -> Tensor:
        """Wait for the tensor. ModelLoadError if the file ends early or can't be read."""
        for piece in self.pieces:
            piece.result()()
        return self.tensor


class ParallelReader:
    """Reads tensors to `device`. One thread calls `start` and awaits results; `close` waits for pieces being read."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._threads = ThreadPoolExecutor(num_threads(), "weights")
        self._files: dict[Path, int] = {}
        self._per_thread = threading.local()

    def start(self, stored: StoredTensor) -> PendingTensor:
        """Begin to read a tensor, after the pieces of tensors begun earlier."""
        content = torch.empty(stored.num_bytes, dtype=torch.uint8, device=self._device)
        file = self._opened(stored.path)
        allocated = torch.cuda.Event() if self._device.type == "cuda" else None
        if allocated is not None:
            allocated.record()  # on the caller's stream, which may still use the memory for something else

        def read(file: int, stored: StoredTensor, begin: int) -> Arrived:
            part = content[begin : begin + PIECE_BYTES]
            if allocated is None:
                _fill(part, file, stored, begin)
                return lambda: None  # the piece has already arrived
            if not hasattr(self._per_thread, "staging"):
                self._per_thread.staging = _Staging(self._device)
            staging: _Staging = self._per_thread.staging
            return staging.copy(part, allocated, lambda buffer: _fill(buffer, file, stored, begin))

        offsets = range(0, stored.num_bytes, PIECE_BYTES)
        pieces = tuple(self._threads.submit(read, file, stored, begin) for begin in offsets)
        return PendingTensor(content.view(stored.dtype).view(stored.shape), pieces)

    def same(self, first: StoredTensor, second: StoredTensor) -> bool:
        """Whether both have the same type, shape and content; they are read to the host until a piece differs."""
        if (first.dtype, first.shape) != (second.dtype, second.shape):
            return False
        pieces = torch.empty(2, min(PIECE_BYTES, first.num_bytes), dtype=torch.uint8)
        for begin in range(0, first.num_bytes, PIECE_BYTES):
            both = pieces[:, : first.num_bytes - begin]
            for piece, stored in zip(both, (first, second), strict=True):
                _fill(piece, self._opened(stored.path), stored, begin)
            if not torch.equal(*both):
                return False
        return True

    def close(self) -> None:
        """Close all files, once no thread reads them."""
        self._threads.shutdown(cancel_futures=True)
        for file in self._files.values():
            os.close(file)
        self._files.clear()

    def _opened(self, path: Path) -> int:
        if path not in self._files:
            try:
                self._files[path] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            except OSError as error:
                raise ModelLoadError(f"{path}: can't be read: {error.strerror}") from error
        return self._files[path]


class _Staging:
    """One thread's two pinned buffers and its stream."""

    def __init__(self, device: torch.device) -> None:
        torch.cuda.set_device(device)
        self._stream = torch.cuda.Stream(device)
        self._next = [_Buffer(), _Buffer()]

    def copy(self, part: Tensor, allocated: torch.cuda.Event, fill: Callable[[Tensor], None]) -> Arrived:
        """Fill a buffer and start its copy to `part`; returns before the copy is done."""
        buffer, other = self._next
        self._next = [other, buffer]
        buffer.copied.synchronize()
        filled = buffer.memory[: part.numel()]
        fill(filled)
        copied = torch.cuda.Event()
        with torch.cuda.stream(self._stream):
            self._stream.wait_event(allocated)
            part.copy_(filled, non_blocking=True)
            copied.record()
        buffer.copied = copied
        return copied.wait


class _Buffer:
    """A pinned buffer, and the event after which it may be overwritten."""

    def __init__(self) -> None:
        self.memory = torch.empty(PIECE_BYTES, dtype=torch.uint8, pin_memory=True)
        self.copied = torch.cuda.Event()


def _fill(buffer: Tensor, file: int, stored: StoredTensor, begin: int) -> None:
    """Fill the buffer with a tensor's bytes from `begin` on."""
    left, offset = buffer.numpy().data, stored.offset + begin
    while left:
        try:
            count = os.preadv(file, [left], offset)
        except OSError as error:
            raise ModelLoadError(f"{stored.path}: can't be read: {error.strerror}") from error
        if not count:
            raise ModelLoadError(f"{stored.path}: truncated: it ends at byte {offset:,}")
        left, offset = left[count:], offset + count
