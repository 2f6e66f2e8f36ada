"""The plan of a decode step: every token that is seen lies in one slot."""

from __future__ import annotations

import random

import pytest
import torch
from torch import Tensor

from thothy_ai.kernels.paged import AttentionBatch
from thothy_ai.kernels.triton.attention.decode_plan import DecodePlan


def plan_batch(contexts: list[int], groups: list[tuple[int, int]], device: torch.device) -> AttentionBatch:
    """Only what the planner reads; groups of (size, shared tokens), together as many sequences as contexts."""

    def index(values: list[int]) -> Tensor:
        return torch.tensor(values, dtype=torch.int32, device=device)

    sizes = [value for size, _ in groups for value in (size, *[0] * (size - 1))]
    shared = [tokens for size, tokens in groups for _ in range(size)]
    none, total = index([]), [tokens + own for tokens, own in zip(shared, contexts, strict=True)]
    return AttentionBatch((none,), none, index(total), none, index(shared), index(sizes), len(total), (), ())


@pytest.mark.parametrize(("window", "chunked"), [(None, False), (1, False), (100, False), (300, False), (100, True)])
@pytest.mark.parametrize(("count", "slots"), [(1, 7), (5, 1), (60, 49), (1500, 33), (2500, 200)])
def test_every_token_that_is_seen_is_in_one_slot(
    count: int, slots: int, window: int | None, device: torch.device, *, chunked: bool
) -> None:
    rng = random.Random(count)
    groups: list[tuple[int, int]] = []
    while sum(size for size, _ in groups) < count:
        room = count - sum(size for size, _ in groups)
        groups.append((min(room, rng.randint(1, 8)), rng.choice([0, 0, 16, 64, 500])))
    batch = plan_batch([rng.randint(1, 400) for _ in range(count)], groups, device)
    plan = DecodePlan.allocate(count, slots, 64, device, group_rows=8, window=window, chunked=chunked)
    plan.fill(batch)

    def cut(begin: int, end: int, context: int) -> int:
        """Tiles of tokens [begin, end) that a sequence sees some of."""
        oldest = 0
        if window is not None:
            oldest = (context - 1) // window * window if chunked else context - window
        return sum(min(first + 64, end) > oldest for first in range(begin, end, 64))

    leads = [(member, size) for member, size in enumerate(batch.group_sizes.tolist()) if size]
    shared, contexts = batch.shared_lens.tolist(), batch.context_lens.tolist()
    seen = {member: cut(0, shared[member], min(contexts[member : member + size])) for member, size in leads}
    with_prefix = [(member, size) for member, size in leads if seen[member]]
    group_starts, place = [], 0
    for number, (member, size) in enumerate(with_prefix):
        group_starts.append(place)
        assert plan.group_members[number] == member
        assert plan.group_starts[member : member + size].tolist() == [place] * size
        place += seen[member]
    prefixes, place, own_starts = place, 0, []
    for member, context in enumerate(contexts):
        own_starts.append(place)
        assert plan.own_starts[member] == place
        place += cut(shared[member], context, context)
    shares = [max(1, -(-tiles // slots)) for tiles in (prefixes, place)]
    assert plan.totals.tolist() == [shares[0], prefixes, shares[1], place]
    lines = ((group_starts, shares[0], prefixes, plan.slot_groups), (own_starts, shares[1], place, plan.slot_members))
    for starts, share, tiles, first_units in lines:
        for slot in range(-(-tiles // share)):
            assert first_units[slot] == max(unit for unit, start in enumerate(starts) if start <= slot * share)
