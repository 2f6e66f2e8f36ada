"""Measures how long the device worked on a step: events in the stream on a GPU, the clock on a CPU."""

from __future__ import annotations

import time
from typing import Protocol

import torch


class StepTimer(Protocol):
    """Sums the parts of a step between `start` and `stop`; `seconds` is read after the step is done."""

    def start(self) -> None:
        """Start timing a part of the step."""

    def stop(self) -> None:
        """Stop timing the part of the step."""

    def seconds(self) -> float:
        """Device seconds of all parts so far."""


class HostTimer:
    """For a CPU, where calls return when their work is done."""

    def __init__(self) -> None:
        self._total = 0.0
        self._begin = 0.0

    def start(self) -> None:
        self._begin = time.perf_counter()

    def stop(self) -> None:
        self._total += time.perf_counter() - self._begin

    def seconds(self) -> float:
        return self._total


class CudaTimer:
    """Events in the current stream; the host waits only in `seconds`."""

    def __init__(self) -> None:
        self._parts: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []

    def start(self) -> None:
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        self._parts.append((begin, end))

    def stop(self) -> None:
        self._parts[-1][1].record()

    def seconds(self) -> float:
        """Device seconds of all parts; waits for the last of them."""
        self._parts[-1][1].synchronize()
        milliseconds: float = sum(begin.elapsed_time(end) for begin, end in self._parts)
        return milliseconds / 1e3
