"""A step's tokens and scattered differences in Triton, against the reference."""

from __future__ import annotations

from itertools import accumulate

import pytest
import torch
from torch import Tensor

from thothy_ai.kernels.reference import rows
from thothy_ai.kernels.step import StepColumns
from thothy_ai.kernels.triton.rows import scatter, step_tokens

LENGTH = 4096
STEPS = {
    "one token": [(0, 0, 1)],
    "decodes": [(3, 7, 1), (0, LENGTH - 1, 1), (2, 0, 1)],
    "a prefill": [(1, 0, 1500)],
    "mixed": [(4, 100, 1), (0, 1024, 1), (2, 5, 33), (1, 0, 1024), (3, 1000, 1025)],
    "at the edge of a short step": [(0, 3, 1), (1, 9, 32)],
    "past it": [(0, 3, 1), (1, 9, 33)],
    "after dropped blocks": [(0, 3072, 1, 1024), (2, 77, 1, 64), (1, 2048, 200, 1984)],
}


def columns(members: list[tuple[int, ...]], device: torch.device) -> StepColumns:
    """As the engine sends them: side by side in one buffer, so that few of them are aligned. A member is its row, first
    position, number of tokens and, if blocks were dropped, how many tokens they held.
    """
    parts = [(row, start, start - sum(dropped), count) for row, start, count, *dropped in members]
    flat = torch.tensor([*zip(*parts, strict=True)], dtype=torch.int32).flatten()
    starts = torch.tensor([*accumulate((count for *_, count in parts), initial=0)], dtype=torch.int32)
    buffer = torch.cat((flat, starts)).to(device)
    return StepColumns(*buffer[: len(flat)].view(4, -1), buffer[len(flat) :])


@pytest.mark.parametrize("members", STEPS.values(), ids=STEPS)
@pytest.mark.parametrize(("block_size", "tables"), [(1, 1), (16, 3), (64, 1)])
def test_step_tokens(members: list[tuple[int, ...]], block_size: int, tables: int, device: torch.device) -> None:
    generator = torch.Generator().manual_seed(4)
    token_ids = torch.randint(0, 1000, (5, LENGTH + 1), generator=generator, dtype=torch.int32).to(device)
    size = (5, tables, LENGTH // block_size)
    blocks = torch.randint(1, 2**31 - 1, size, generator=generator, dtype=torch.int32).to(device)
    step, total = columns(members, device), sum(count for _, _, count, *_ in members)
    got = step_tokens(token_ids, blocks, step, total, block_size)
    wanted = rows.step_tokens(token_ids, blocks, step, total, block_size)
    assert len(got.slots) == tables
    for mine, theirs in zip((*got[:2], *got.slots), (*wanted[:2], *wanted.slots), strict=True):
        assert mine.dtype == torch.int64
        assert torch.equal(mine, theirs)


@pytest.mark.parametrize("count", [1, 5, 1024, 1025, 3000])
def test_scatter(count: int, device: torch.device) -> None:
    generator = torch.Generator().manual_seed(count)
    target = torch.full((7, 500), -1, dtype=torch.int32, device=device)
    index = torch.randperm(3500, generator=generator)[:count].to(device, torch.int32)
    values = torch.randint(0, 9, (count,), generator=generator, dtype=torch.int32).to(device)
    wanted = target.clone()
    scatter(target, index, values)
    rows.scatter(wanted, index, values)
    assert torch.equal(target, wanted)
    assert int((target >= 0).sum()) == count


def test_scatter_of_nothing(device: torch.device) -> None:
    target = torch.zeros(2, 2, device=device)
    nothing: Tensor = torch.empty(0, dtype=torch.int32, device=device)
    scatter(target, nothing, nothing.float())
    assert not target.any()
