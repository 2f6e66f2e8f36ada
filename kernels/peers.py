"""Memory through which the devices of several ranks exchange rows within a kernel."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

ROW = 16384  # numbers of two bytes, at most
_ROWS = 256  # between two ranks, of at most _NARROW numbers; NCCL is faster for more
_NARROW = 4096


class Peers(NamedTuple):
    """One rank's view of memory that all ranks' devices read and write.

    `inboxes` [R] int64 are the addresses of the ranks' inboxes, each of `inbox_words` int64. An inbox has two places
    for each row of each rank, which are used in turn. `exchanged` [rows] int32 counts how often a row was exchanged:
    it says which place is next, and goes with each number, so that the reader knows when it has arrived. `given_up`
    [1] int32 ends kernels that wait for a rank that was lost.
    """

    inboxes: Tensor
    exchanged: Tensor
    given_up: Tensor
    rank: int

    @property
    def rows(self) -> int:
        """The most rows that are exchanged at once."""
        return len(self.exchanged)

    def takes(self, x: Tensor) -> bool:
        """Whether x [T, N] can be exchanged in less time than NCCL takes (measured on two H200s): few rows, since each
        rank sends all of them to each other one, and fewer if they are wide. Rows are read in pairs of numbers.
        """
        rows, size = x.shape
        most = self.rows // (-(-size // _NARROW)) ** 2
        in_pairs = not (size % 2 or x.stride(0) % 2 or x.storage_offset() % 2)
        return 0 < rows <= most and size <= ROW and in_pairs and x.itemsize == 2 and x.stride(1) == 1


def most_rows(ranks: int) -> int:
    """The most rows that so many ranks exchange at once."""
    return _ROWS // (ranks - 1)


def inbox_words(ranks: int) -> int:
    """The size of an inbox: each pair of numbers is a word, with the count of its row."""
    return 2 * ranks * most_rows(ranks) * (ROW // 2)


def peers_of(inboxes: list[int], rank: int, device: torch.device) -> Peers:
    """The view of `rank`, for inboxes at these addresses, all zero."""
    zeros = torch.zeros(most_rows(len(inboxes)) + 1, dtype=torch.int32, device=device)
    return Peers(torch.tensor(inboxes, device=device), zeros[1:], zeros[:1], rank)
