"""Sums over ranks through inboxes, alone and in one pass with a residual addition and an RMS norm.

What the other ranks send lies in the inbox before the kernel starts.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tests.support.layer_checks import normal
from thothy_ai.kernels.peers import EMPTY, ROW, inbox_size, most_rows, peers_of
from thothy_ai.kernels.triton import norm, rank_sums

TYPES = [torch.bfloat16, torch.float16]
GROUPS = [(2, 0), (2, 1), (4, 2)]  # ranks, and the one that is tested
EPS = 1e-5


class OneRank:
    """A rank, with the memory of all."""

    def __init__(self, ranks: int, rank: int, device: torch.device) -> None:
        self.ranks, self.rank = ranks, rank
        self.inboxes = torch.full((ranks, inbox_size(ranks)), EMPTY, dtype=torch.int16, device=device)
        self.peers = peers_of([inbox.data_ptr() for inbox in self.inboxes], rank, device)

    def receive(self, rows: list[Tensor]) -> Tensor:
        """Have all other ranks send their rows [T, N]; returns a copy of this rank's."""
        for other, x in enumerate(rows):
            if other != self.rank:
                for row in range(len(x)):
                    self._place(self.rank, other, row, x.shape[1])[:] = self._sent(x, row)
        return rows[self.rank].clone()

    def assert_sent(self, x: Tensor) -> None:
        """Whether all other ranks have this rank's rows, exchanged last, and this rank's inbox is empty again."""
        for other in range(self.ranks):
            if other != self.rank:
                for row in range(len(x)):
                    self.peers.turns[row] ^= 1
                    place = self._place(other, self.rank, row, x.shape[1])
                    assert torch.equal(place, self._sent(x, row))
                    self.peers.turns[row] ^= 1
                    place[:] = EMPTY
        assert (self.inboxes == EMPTY).all()

    def _place(self, inbox: int, sender: int, row: int, size: int) -> Tensor:
        places = self.inboxes[inbox].view(2, self.ranks, most_rows(self.ranks), ROW)
        return places[self.peers.turns[row], sender, row, :size]

    def _sent(self, x: Tensor, row: int) -> Tensor:
        bits = x[row].view(torch.int16)
        return bits.masked_fill(bits == EMPTY, 0)


def summands(ranks: int, tokens: int, size: int, dtype: torch.dtype, device: torch.device) -> list[Tensor]:
    return [normal(tokens, size, seed=10 * tokens + rank).to(device, dtype) for rank in range(ranks)]


def total(rows: list[Tensor]) -> Tensor:
    return torch.stack([each.float() for each in rows]).sum(0).to(rows[0].dtype)


def assert_equal(got: Tensor, wanted: Tensor) -> None:
    step = 0 if got.is_cuda or got.dtype != torch.bfloat16 else 2**-7  # the interpreter cuts bfloat16 off
    torch.testing.assert_close(got, wanted, atol=0, rtol=step)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(("ranks", "rank"), GROUPS)
def test_sums_that_follow_one_another(ranks: int, rank: int, dtype: torch.dtype, device: torch.device) -> None:
    """Each row takes its own turns, and rows of any size have the same places."""
    group = OneRank(ranks, rank, device)
    for tokens, size in ((3, 70), (1, 64), (3, 71), (2, 6), (3, 70)):
        rows = summands(ranks, tokens, size, dtype, device)
        mine = group.receive(rows)
        assert rank_sums.all_reduce(mine, group.peers) is mine
        assert_equal(mine, total(rows))
        group.assert_sent(rows[rank])


def test_rows_that_begin_anywhere(device: torch.device) -> None:
    """A part of wider rows, whose first number is at an odd place."""
    group = OneRank(2, 0, device)
    rows = summands(2, 3, 61, torch.float16, device)
    wide = torch.zeros(3, 64, dtype=torch.float16, device=device)
    mine = wide[:, 1:62]
    mine.copy_(group.receive(rows))
    rank_sums.all_reduce(mine, group.peers)
    assert_equal(mine, total(rows))
    assert not wide[:, 0].any()
    assert not wide[:, 62:].any()


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(("ranks", "rank"), GROUPS)
def test_the_norm_of_a_sum(ranks: int, rank: int, dtype: torch.dtype, device: torch.device) -> None:
    """As the norm by itself of the sum by itself."""
    group, weight = OneRank(ranks, rank, device), normal(96, seed=1).to(device)
    rows, residual = summands(ranks, 3, 96, dtype, device), normal(3, 96, seed=2).to(device, dtype)
    before = residual.clone()
    mine = group.receive(rows)
    rank_sums.all_reduce(mine, group.peers)
    wanted = norm.add_rms_norm(mine, residual, weight, EPS)
    again = before.clone()
    got = rank_sums.add_rms_norm(group.receive(rows), again, weight, EPS, group.peers)
    assert torch.equal(again, residual)
    assert torch.equal(got, wanted)
    quantized = norm.add_rms_norm_fp8(mine, before.clone(), weight, EPS)
    got_quantized = rank_sums.add_rms_norm_fp8(group.receive(rows), before, weight, EPS, group.peers)
    assert torch.equal(before, residual)
    assert torch.equal(got_quantized.values.view(torch.uint8), quantized.values.view(torch.uint8))
    assert torch.equal(got_quantized.scales, quantized.scales)


def test_numbers_of_any_bits(device: torch.device) -> None:
    """Infinities and NaN go through; zeros arrive whatever their sign."""
    group = OneRank(2, 0, device)
    mine = torch.tensor([[1.0, -0.0, float("inf"), 2.0, -1.0, 0.0]], device=device, dtype=torch.float16)
    theirs = torch.tensor([[float("nan"), -0.0, 1.0, float("-inf"), 1.0, 0.0]], device=device, dtype=torch.float16)
    got = rank_sums.all_reduce(group.receive([mine, theirs]), group.peers)
    torch.testing.assert_close(got, mine + theirs, equal_nan=True)
    group.assert_sent(mine)


def test_a_wait_that_is_given_up_ends(device: torch.device) -> None:
    group = OneRank(2, 0, device)
    group.peers.given_up.fill_(1)
    rank_sums.all_reduce(normal(2, 8).to(device, torch.float16), group.peers)


def test_what_is_exchanged(device: torch.device) -> None:
    """Few rows of numbers of two bytes."""
    peers = OneRank(2, 0, device).peers
    rows = torch.zeros(most_rows(2) + 1, 64, device=device, dtype=torch.float16)
    assert peers.takes(rows[1:, 1:62])
    assert not peers.takes(rows)
    assert not peers.takes(rows[:0])
    assert not peers.takes(rows[1:].float())
    assert not peers.takes(rows[1:].t())
    assert not peers.takes(rows.new_empty(1, ROW + 2))
    assert peers.takes(rows.new_empty(1, ROW))
    assert OneRank(4, 0, device).peers.rows < peers.rows
