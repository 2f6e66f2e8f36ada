"""Memory through which the devices of several ranks exchange rows within a kernel."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

ROW = 16384  # numbers of two bytes, at most
EMPTY = -(1 << 15)  # the bits of a negative zero: of a place's numbers that have not arrived
_ROWS = 512  # between two ranks; NCCL takes about twice as long for these, or longer (two H200s, benchmarks/sums.py)
_FIRST_WITH_EARLY_LAUNCHES = (9, 0)  # compute capability


class Peers(NamedTuple):
    """One rank's view of memory that all ranks' devices read and write.

    `inboxes` [R] int64 are the addresses of the ranks' inboxes, each of `inbox_size` int16. An inbox has two places for
    each row of each rank, which are used in turn; their numbers are `EMPTY` until they arrive. `turns` [rows] int32 are
    the rows' next places, 0 or 1. `given_up` [1] int32 ends kernels that wait for a rank that was lost.

    `early`: on this device, a kernel can begin before the one before it has ended, and wait for its results.
    """

    inboxes: Tensor
    turns: Tensor
    given_up: Tensor
    rank: int
    early: bool

    @property
    def rows(self) -> int:
        """The most rows that are exchanged at once."""
        return len(self.turns)

    def takes(self, x: Tensor) -> bool:
        """Whether x [T, N] can be exchanged: few rows, since each rank sends all of them to each other one."""
        rows, size = x.shape
        return 0 < rows <= self.rows and size <= ROW and x.itemsize == 2 and x.stride(1) == 1


def most_rows(ranks: int) -> int:
    """The most rows that so many ranks exchange at once."""
    return _ROWS // (ranks - 1)


def inbox_size(ranks: int) -> int:
    """How many numbers an inbox holds."""
    return 2 * ranks * most_rows(ranks) * ROW


def peers_of(inboxes: list[int], rank: int, device: torch.device) -> Peers:
    """The view of `rank`, for inboxes at these addresses, all empty."""
    early = device.type == "cuda" and torch.cuda.get_device_capability(device) >= _FIRST_WITH_EARLY_LAUNCHES
    zeros = torch.zeros(most_rows(len(inboxes)) + 1, dtype=torch.int32, device=device)
    return Peers(torch.tensor(inboxes, device=device), zeros[1:], zeros[:1], rank, early)
