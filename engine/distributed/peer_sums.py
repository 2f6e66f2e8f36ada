"""Sums over ranks whose GPUs read and write each other's memory, for steps of up to a few hundred tokens."""

from __future__ import annotations

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symmetric
from torch import Tensor

from thothy_ai.kernels.fp8 import Quantized
from thothy_ai.kernels.peers import EMPTY, inbox_size, peers_of
from thothy_ai.kernels.triton import rank_sums


class PeerSums:
    """One rank's part of the sums; all ranks make the same calls, each on one stream.

    Its memory is torch's symmetric memory, which the process group has connected before the first call.
    """

    def __init__(self, group: dist.ProcessGroup, device: torch.device) -> None:
        """Allocate this rank's inbox and connect it with the others'. RuntimeError if that fails, in time also on the
        other ranks. No rank may sum before all have returned.
        """
        self._inbox = symmetric.empty(inbox_size(group.size()), dtype=torch.int16, device=device).fill_(EMPTY)
        self._handle = symmetric.rendezvous(self._inbox, group)
        self._peers = peers_of(self._handle.buffer_ptrs, group.rank(), device)
        self._one, self._stream = torch.ones(1, dtype=torch.int32).pin_memory(), torch.cuda.Stream(device)
        torch.cuda.synchronize(device)  # the inbox is empty

    def takes(self, x: Tensor) -> bool:
        """Whether x can be summed here."""
        return self._peers.takes(x)

    def all_reduce(self, x: Tensor) -> Tensor:
        """Overwrite x [T, N] with its sum over the ranks; returns it."""
        return rank_sums.all_reduce(x, self._peers)

    def add_rms_norm(self, x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> Tensor:
        """The normalized sum [T, N] of residual and all ranks' x; `residual` is overwritten with the sum."""
        return rank_sums.add_rms_norm(x, residual, weight, eps, self._peers)

    def add_rms_norm_fp8(self, x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> Quantized:
        """As `add_rms_norm`, quantized by row."""
        return rank_sums.add_rms_norm_fp8(x, residual, weight, eps, self._peers)

    def give_up(self) -> None:
        """End the kernels that wait for a rank which was lost; what they compute is wrong.

        The flag is copied, since another kernel could not start while they fill the device.
        """
        with torch.cuda.stream(self._stream):
            self._peers.given_up.copy_(self._one, non_blocking=True)


def reaches_all(device: torch.device, devices: list[torch.device]) -> bool:
    """Whether `device` reads and writes the memory of all others."""
    return all(torch.cuda.can_device_access_peer(device, other) for other in devices if other != device)
