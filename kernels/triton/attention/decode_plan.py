"""How a step's decode attention is divided over programs: decided on the device, so that a CUDA graph stays valid.

What a step reads is two lines of tiles: those of shared prefixes, each group's once, and those that every decode
sequence has for itself. Each line is cut into equal shares, one for each slot of the grid, whatever the lengths (the
Stream-K decomposition: Osama et al., 2023); a tile of a group costs more than one of a sequence, so a single line
would give some slots more work than others. A sequence leaves a partial result in each slot that it touches:

    groups    |   group 0   |         group 1         | group 2 |
    slots     |    0    |    1    |    2    |    3    |    4    |
    sequences | sequence 0 |  sequence 1  |     sequence 2      |
    slots     |    0    |    1    |    2    |    3    |    4    |

Sequence + slot grows from each partial to the next, so it numbers them, and a sequence's are numbered in a row.

Under a window the lines leave out tiles that lie wholly before it: of a prefix, before the window of its group's
shortest member. Thus a window of 4,096 tokens is cut into as many parts whether 5,000 or 100,000 come before its end.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from thothy_ai.kernels.paged import AttentionBatch
from thothy_ai.kernels.triton.attention.first_seen import first_seen

_NEVER = tl.constexpr(2**31 - 1)
_MEMBERS = 1024
_SLOTS = 16


@dataclass(frozen=True, eq=False)
class DecodePlan:
    """A step's division, in buffers that outlive the steps. All int32; places are tiles from their line's start.

    `totals` [4]: tiles of a slot and in all, of groups, then of sequences. `own_starts`, `group_starts` [max_rows]:
    where a sequence's own tiles start, and those of its group. `group_members` [max_rows]: the first member of each
    group that shares something. `slot_groups`, `slot_members` [num_slots]: the group and the sequence that a slot's
    shares start in. `group_skipped` [max_rows]: tiles of a group's prefix that no member sees through `window`.
    """

    tile: int
    num_slots: int
    group_rows: int
    window: int | None
    chunked: bool
    totals: Tensor
    own_starts: Tensor
    group_starts: Tensor
    group_members: Tensor
    slot_groups: Tensor
    slot_members: Tensor
    group_skipped: Tensor | None = None  # without a window nothing is skipped

    @classmethod
    def allocate(
        cls,
        max_rows: int,
        num_slots: int,
        tile: int,
        device: torch.device,
        *,
        group_rows: int = 1,
        window: int | None = None,
        chunked: bool = False,
    ) -> DecodePlan:
        """Buffers for steps of at most `max_rows` decode sequences, in groups of at most `group_rows`, in tiles of
        `tile` tokens, of which each sees the last `window`, or its chunk of so many.
        """

        def buffer(size: int) -> Tensor:
            return torch.zeros(size, dtype=torch.int32, device=device)

        return cls(
            tile=tile,
            num_slots=num_slots,
            group_rows=group_rows,
            window=window,
            chunked=chunked,
            totals=buffer(4),
            own_starts=buffer(max_rows),
            group_starts=buffer(max_rows),
            group_members=buffer(max_rows),
            slot_groups=buffer(num_slots),
            slot_members=buffer(num_slots),
            group_skipped=None if window is None else buffer(max_rows),
        )

    def fill(self, batch: AttentionBatch) -> None:
        """Divide the batch's decode sequences; one launch."""
        _plan_kernel[(triton.cdiv(self.num_slots, _SLOTS),)](
            batch.context_lens, batch.shared_lens, batch.group_sizes, self.totals, self.own_starts, self.group_starts,
            self.group_members, self.slot_groups, self.slot_members, self.group_skipped, batch.num_decode,
            self.num_slots,
            TILE=self.tile, WINDOW=self.window, CHUNKED=self.chunked, GROUP_ROWS=self.group_rows, MEMBERS=_MEMBERS,
            SLOTS=_SLOTS, num_warps=8,
        )  # fmt: skip


@triton.jit(
    do_not_specialize=["num_decode", "num_slots"],
    do_not_specialize_on_alignment=["context_lens", "shared_lens", "group_sizes"],
)
def _plan_kernel(
    context_lens, shared_lens, group_sizes, totals, own_starts, group_starts, group_members, slot_groups, slot_members,
    group_skipped, num_decode, num_slots,
    TILE: tl.constexpr, WINDOW: tl.constexpr, CHUNKED: tl.constexpr, GROUP_ROWS: tl.constexpr, MEMBERS: tl.constexpr,
    SLOTS: tl.constexpr,
):  # fmt: skip
    """Each program walks all members and places SLOTS slots; the first also writes what there is once."""
    writes = tl.program_id(0) == 0
    shared_total = 0
    own_total = 0
    for first in range(0, num_decode, MEMBERS):
        members = first + tl.arange(0, MEMBERS)
        _, leads, own, _, _ = _member_tiles(
            context_lens, shared_lens, group_sizes, members, num_decode, TILE, WINDOW, CHUNKED, GROUP_ROWS
        )
        shared_total += tl.sum(leads)
        own_total += tl.sum(own)
    group_share = tl.maximum(tl.cdiv(shared_total, num_slots), 1)
    own_share = tl.maximum(tl.cdiv(own_total, num_slots), 1)
    if writes:
        tl.store(totals, group_share)
        tl.store(totals + 1, shared_total)
        tl.store(totals + 2, own_share)
        tl.store(totals + 3, own_total)

    slots = tl.program_id(0) * SLOTS + tl.arange(0, SLOTS)
    slot_group = tl.full([SLOTS], -1, tl.int32)
    slot_member = tl.full([SLOTS], -1, tl.int32)
    shared_place = 0
    own_place = 0
    groups = 0
    for first in range(0, num_decode, MEMBERS):
        members = first + tl.arange(0, MEMBERS)
        inside = members < num_decode
        shared, leads, own, skipped, size = _member_tiles(
            context_lens, shared_lens, group_sizes, members, num_decode, TILE, WINDOW, CHUNKED, GROUP_ROWS
        )
        is_lead = leads > 0
        group_start = shared_place + tl.cumsum(leads) - shared
        own_start = own_place + tl.cumsum(own) - own
        number = groups + tl.cumsum(is_lead.to(tl.int32)) - 1
        if WINDOW is None:
            tl.store(group_starts + members, group_start, mask=inside & writes)
        else:  # a group's first member knows what all of them see
            for place in tl.static_range(GROUP_ROWS):
                tl.store(group_starts + members + place, group_start, mask=(place < size) & writes)
                tl.store(group_skipped + members + place, skipped, mask=(place < size) & writes)
        tl.store(own_starts + members, own_start, mask=inside & writes)
        tl.store(group_members + number, members, mask=is_lead & writes)
        # A share starts in the last unit that starts no later than it.
        slot_group += _not_after(tl.where(is_lead, group_start, _NEVER), slots * group_share)
        slot_member += _not_after(tl.where(inside, own_start, _NEVER), slots * own_share)
        shared_place += tl.sum(leads)
        own_place += tl.sum(own)
        groups += tl.sum(is_lead.to(tl.int32))
    tl.store(slot_groups + slots, slot_group, mask=slots < num_slots)
    tl.store(slot_members + slots, slot_member, mask=slots < num_slots)


@triton.jit
def _member_tiles(
    context_lens,
    shared_lens,
    group_sizes,
    members,
    num_decode,
    TILE: tl.constexpr,
    WINDOW: tl.constexpr,
    CHUNKED: tl.constexpr,
    GROUP_ROWS: tl.constexpr,
):
    """Tiles of each member's shared prefix; the same, at the first member of a group only; and of its own part.

    Then, of a group at its first member: tiles that no member sees, and its size. Under a window the first result is
    right there only.
    """
    inside = members < num_decode
    context = tl.load(context_lens + members, mask=inside, other=0)
    length = tl.load(shared_lens + members, mask=inside, other=0)
    size = tl.load(group_sizes + members, mask=inside, other=0)
    shared = tl.cdiv(length, TILE)
    own = tl.cdiv(context - length, TILE)
    skipped = 0
    if WINDOW is not None:
        own -= skipped_tiles(context, length, TILE, WINDOW, CHUNKED)
        shortest = context
        for place in tl.static_range(1, GROUP_ROWS):
            other = tl.load(context_lens + members + place, mask=place < size, other=_NEVER)
            shortest = tl.minimum(shortest, other)
        first = first_seen(shortest - 1, WINDOW, CHUNKED)
        skipped = tl.where(first >= length, shared, tl.maximum(first, 0) // TILE)
        shared -= skipped
    return shared, tl.where(size > 0, shared, 0), own, skipped, size


@triton.jit
def skipped_tiles(context, shared, TILE: tl.constexpr, WINDOW: tl.constexpr, CHUNKED: tl.constexpr):
    """Tiles of a sequence's own part that lie wholly before its window."""
    return tl.maximum(first_seen(context - 1, WINDOW, CHUNKED) - shared, 0) // TILE


@triton.jit
def group_tiles(group_skipped, member, shared, TILE: tl.constexpr, WINDOW: tl.constexpr):
    """Tiles of the prefix of a member's group that some member sees."""
    tiles = tl.cdiv(shared, TILE)
    if WINDOW is not None:
        tiles = tl.where(shared > 0, tiles - tl.load(group_skipped + member), 0)
    return tiles


@triton.jit
def _not_after(starts, places):
    """How many of `starts` are no later than each place."""
    return tl.sum((starts[:, None] <= places[None, :]).to(tl.int32), axis=0)
