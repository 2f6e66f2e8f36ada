"""Transfers of small tensors to the device and back, without the host waiting.

On a GPU both directions go through pinned memory, in stream order. torch's caching host allocator reuses a pinned
buffer only when the copies that used it are done.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def send(values: Sequence[int] | NDArray[np.int32], device: torch.device) -> Tensor:
    """The values as int32 on the device, in their shape, contiguous."""
    return deliver(_as_tensor(values), device)


def send_into(values: NDArray[np.int32], target: Tensor) -> Tensor:
    """Overwrite the front of `target` [>= N] int32; returns that part."""
    return target[: len(values)].copy_(_pinned(_as_tensor(values), target.device), non_blocking=True)


def deliver(host: Tensor, device: torch.device) -> Tensor:
    return _pinned(host, device).to(device, non_blocking=True)


def _as_tensor(values: Sequence[int] | NDArray[np.int32]) -> Tensor:
    # Row-major, as kernels need it.
    return torch.from_numpy(np.ascontiguousarray(values, np.int32))


def _pinned(host: Tensor, device: torch.device) -> Tensor:
    """In pinned memory if it goes to a GPU; unchanged if it is there already."""
    return host.pin_memory() if device.type == "cuda" else host


class Readback:
    """Numbers that the device computes; made right after their kernel's launch. The device may overwrite them later."""

    def __init__(self, values: Tensor) -> None:
        self._done: torch.cuda.Event | None = None
        self._host = torch.empty(values.shape, dtype=values.dtype, pin_memory=values.is_cuda)
        self._host.copy_(values, non_blocking=True)
        if values.is_cuda:
            self._done = torch.cuda.Event()
            self._done.record()

    def read(self) -> list[int]:
        values: list[int] = self.tensor().tolist()
        return values

    def tensor(self) -> Tensor:
        """Wait for the numbers, not for anything launched later."""
        if self._done is not None:
            self._done.synchronize()
        return self._host
