"""`Ranks` over torch.distributed: NCCL between GPUs, gloo between processes on a CPU.

GPUs that reach each other's memory sum few rows by kernels of their own.
"""

from __future__ import annotations

import logging
import os
import socket
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import TCPStore

from thothy_ai.kernels.fp8 import Quantized
from thothy_ai.kernels.operations import Operations

if TYPE_CHECKING:
    from thothy_ai.engine.distributed.peer_sums import PeerSums

log = logging.getLogger(__name__)

T = TypeVar("T")

_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor  # torch's name before 2.13

_HOST = "127.0.0.1"
JOIN_SECONDS = 120.0
_COLLECTIVE_SECONDS = 600.0  # for all ranks to reach an operation: they can load at very different speeds
_ENVIRONMENT = {
    "NCCL_NVLS_ENABLE": "0",  # NVLink multicast deadlocks in containers that may not use it
    "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1",
    "NCCL_GRAPH_REGISTER": "0",  # registering the buffers of each sum in each graph takes long and saves little
    "NCCL_SOCKET_IFNAME": "lo",  # all ranks are on this machine, whose host name may not resolve
    "GLOO_SOCKET_IFNAME": "lo",
}


class ProcessGroup:
    """Implements `Ranks`; a process is in at most one group."""

    def __init__(self, rank: int, size: int, device: torch.device, store: TCPStore) -> None:
        """Join; returns once all ranks have joined and their devices are connected."""
        self.rank, self.size = rank, size
        for name, value in _ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        self._on_gpu = on_gpu = device.type == "cuda"
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if on_gpu else "gloo",
            store=store,
            rank=rank,
            world_size=size,
            device_id=device if on_gpu else None,
            timeout=timedelta(seconds=_COLLECTIVE_SECONDS),
        )
        self._peers: PeerSums | None = None
        dist.all_reduce(torch.ones(1, device=device))  # makes NCCL allocate its memory before the KV cache is sized
        if on_gpu:
            torch.cuda.synchronize(device)
            self._peers = self._connected(device)

    def _connected(self, device: torch.device) -> PeerSums | None:
        """Sums through the GPUs' own memory, if each reaches all others' and they can be connected."""
        from thothy_ai.engine.distributed.peer_sums import PeerSums, reaches_all  # noqa: PLC0415  needs Triton

        first = device.index - self.rank  # the ranks' devices follow each other
        devices = [torch.device("cuda", first + rank) for rank in range(self.size)]
        if not self.least(int(reaches_all(device, devices))):
            return None
        peers: PeerSums | None = None
        try:
            peers = PeerSums(dist.distributed_c10d._get_default_group(), device)
        except RuntimeError as error:
            log.warning("NCCL computes all sums, since the GPUs' memory cannot be connected: %s", error)
        return peers if self.least(int(peers is not None)) else None

    def _peers_for(self, x: Tensor) -> PeerSums | None:
        """What sums x over the ranks through peers' memory; None if NCCL or gloo does."""
        return self._peers if self._peers is not None and self._peers.takes(x) else None

    def all_reduce(self, tensor: Tensor) -> Tensor:
        if (peers := self._peers_for(tensor)) is not None:
            return peers.all_reduce(tensor)
        dist.all_reduce(tensor)
        return tensor

    def add_rms_norm(self, x: Tensor, residual: Tensor, weight: Tensor, eps: float, operations: Operations) -> Tensor:
        if (peers := self._peers_for(x)) is not None:
            return peers.add_rms_norm(x, residual, weight, eps)
        return operations.add_rms_norm(self.all_reduce(x), residual, weight, eps)

    def add_rms_norm_fp8(
        self, x: Tensor, residual: Tensor, weight: Tensor, eps: float, operations: Operations
    ) -> Quantized:
        if (peers := self._peers_for(x)) is not None:
            return peers.add_rms_norm_fp8(x, residual, weight, eps)
        return operations.add_rms_norm_fp8(self.all_reduce(x), residual, weight, eps)

    def all_gather(self, tensor: Tensor) -> Tensor:
        rows, columns = tensor.shape
        gathered = tensor.new_empty(self.size * rows, columns)
        if rows:  # gloo takes no empty tensors
            _gather(gathered, tensor.contiguous())
        return gathered.view(self.size, rows, columns).transpose(0, 1).flatten(1)

    def decided(self, value: T) -> T:
        values = [value]
        dist.broadcast_object_list(values, src=0, device=torch.device("cpu"))
        return values[0]

    def least(self, number: int) -> int:
        found = torch.tensor(number)
        dist.all_reduce(found, dist.ReduceOp.MIN)
        return int(found)

    def leave(self) -> None:
        """Leave the group after the other ranks have ended, and after this rank's graphs have been freed."""
        if self._peers is not None:
            with suppress(RuntimeError):  # of a device that failed
                self._peers.give_up()
        if self._on_gpu and dist.group.WORLD is not None:
            dist.group.WORLD.abort()  # otherwise NCCL waits for graphs with its operations, and for the other ranks
        with suppress(RuntimeError):
            dist.destroy_process_group()


def open_store(size: int) -> TCPStore:
    """The first rank's store, by which ranks find each other, at a free port of this machine."""
    # Without a socket, the store would listen on all interfaces, and it trusts all who write to it.
    with socket.create_server((_HOST, 0)) as listening:
        port = listening.getsockname()[1]
        return TCPStore(
            _HOST,
            port,
            size,
            is_master=True,
            wait_for_workers=False,
            timeout=timedelta(seconds=JOIN_SECONDS),
            master_listen_fd=listening.detach(),
        )


def reach_store(port: int, size: int) -> TCPStore:
    """Another rank's connection to the first rank's store."""
    return TCPStore(_HOST, port, size, is_master=False, timeout=timedelta(seconds=JOIN_SECONDS))
