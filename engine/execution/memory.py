"""Device memory (in use, total and planned; read at most once per second), and out-of-memory errors."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import torch

from thothy_ai.engine.api import MemoryStats

_EVERY_SECONDS = 1.0
_OUT_OF_MEMORY = ("out of memory", "CUBLAS_STATUS_ALLOC_FAILED", "can't allocate memory")  # CUDA, cuBLAS, a CPU


class MemoryGauge:
    """Reads the device's memory; readings are cached, since asking the driver is slow."""

    def __init__(self, device: torch.device, planned: int) -> None:
        self._device, self._planned = device, planned
        self._read_at = float("-inf")
        self._last = MemoryStats(planned_bytes=planned)
        self._lock = threading.Lock()

    def read(self) -> MemoryStats:
        """The newest reading, at most a second old. Can be called from any thread."""
        with self._lock:
            now = time.monotonic()
            if now - self._read_at >= _EVERY_SECONDS:
                self._read_at = now
                free, total = device_memory(self._device)
                self._last = MemoryStats(total - free, total, self._planned)
            return self._last


def is_out_of_memory(error: BaseException) -> bool:
    """Whether the error is a failed allocation, which leaves the device intact. Only torch's allocator has a type for
    it; other libraries' errors are recognized by their text.
    """
    if isinstance(error, torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(text in str(error) for text in _OUT_OF_MEMORY)


def device_memory(device: torch.device) -> tuple[int, int]:
    """(free, total) bytes; on a CPU, `free` is everything that this process does not hold."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)
    page = os.sysconf("SC_PAGE_SIZE")
    total = os.sysconf("SC_PHYS_PAGES") * page
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * page
    return total - resident, total
