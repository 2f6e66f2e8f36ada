"""Transfers of small tensors to the device and back, for which the host does not wait.

On a GPU, both directions go through pinned memory, in stream order. torch's caching host allocator reuses a pinned
buffer only after the copies that used it are done.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def send(values: Sequence[int] | NDArray[np.int32], device: torch.device) -> Tensor:
    """The values as a contiguous int32 tensor on the device, in their shape."""
    return deliver(_as_tensor(values), device)


def send_into(values: NDArray[np.int32], target: Tensor) -> Tensor:
    """Overwrite the front of `target` [>= N] int32; returns that part."""
    return target[: len(values)].copy_(_pinned(_as_tensor(values), target.device), non_blocking=True)


def deliver(host: Tensor, device: torch.device) -> Tensor:
    return _pinned(host, device).to(device, non_blocking=True)


def _as_tensor(values: Sequence[int] | NDArray[np.int32]) -> Tensor:
    # Kernels need row-major order.
    return torch.from_numpy(np.ascontiguousarray(values, np.int32))


def _pinned(host: Tensor, device: torch.device) -> Tensor:
    """The tensor in pinned memory if the device is a GPU; unchanged if it is pinned already."""
    return host.pin_memory() if device.type == "cuda" else host


class Readback:
    """Begins a transfer of results to the host. Create it right after their kernel's launch; later kernels can then
    overwrite them.
    """

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
        """Wait for the transfer, but not for anything launched later."""
        if self._done is not None:
            self._done.synchronize()
        return self._host
