"""Sorting by expert: every assignment once, in order, in tiles of one expert each."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tests.support.margins import Margins
from thothy_ai.kernels.triton.experts.sort import most_tiles, sort_by_expert

CASES = {  # tokens, experts of each, all experts, rows of a tile
    "one token": (1, 2, 8, 16),
    "small tiles": (13, 3, 5, 4),
    "more chunks than one": (2100, 4, 7, 64),
    "many experts": (70, 8, 128, 16),
    "experts that fill all bins": (70, 2, 127, 16),
    "one expert": (5, 1, 1, 4),
}


def drawn(tokens: int, top_k: int, experts: int, device: torch.device) -> Tensor:
    generator = torch.Generator().manual_seed(tokens)
    return torch.rand(tokens, experts, generator=generator).topk(top_k).indices.int().to(device)


@pytest.mark.parametrize("name", CASES)
def test_sorted_in_order(name: str, device: torch.device, margins: Margins) -> None:
    tokens, top_k, experts, rows = CASES[name]
    ids = margins.around(drawn(tokens, top_k, experts, device))
    check(ids, experts, rows)


@pytest.mark.parametrize("expert", [0, 6])
def test_all_to_one_expert(expert: int, device: torch.device) -> None:
    """As when all tokens of a step are padding."""
    check(torch.full((300, 1), expert, dtype=torch.int32, device=device), 7, 16)


def check(ids: Tensor, experts: int, rows: int) -> None:
    flat = ids.flatten().cpu()
    found = sort_by_expert(ids, experts, rows)
    assert torch.equal(found.order.cpu().long(), flat.sort(stable=True).indices)
    assert found.tiles.shape == (3, most_tiles(len(flat), experts, rows))
    covered: list[int] = []
    for expert, begin, end in found.tiles.T.tolist():
        assert 0 <= end - begin <= rows
        assert 0 <= expert < experts
        assert bool((flat[found.order[begin:end].cpu().long()] == expert).all())
        covered += range(begin, end)
    assert covered == list(range(len(flat)))


@pytest.mark.parametrize(
    ("assignments", "experts", "rows", "most"), [(1, 8, 16, 8), (64, 8, 16, 12), (7, 128, 16, 128)]
)
def test_there_is_room_for_the_most_tiles(assignments: int, experts: int, rows: int, most: int) -> None:
    assert most_tiles(assignments, experts, rows) == most
