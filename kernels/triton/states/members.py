"""The members of a step, as recurrent layers compute them: single tokens in place, longer members in chunks.

A member may be followed by others that continue its row: with a single token each, if it has a single token, and with
several, if it has several. The first one's program computes them all.
"""

from __future__ import annotations

from typing import NamedTuple

import triton
import triton.language as tl
from torch import Tensor

from thothy_ai.kernels.paged import AttentionBatch

CHUNK = 64  # tokens
DECODE_VALUES = 16  # of a head per program of one warp, whose sums wait for no other warp


class LongerMembers(NamedTuple):
    """The members with several tokens: their number, rows, the positions where they end, where their tokens begin in
    the step, and the slots in which their states are kept, if any are.
    """

    number: int
    rows: Tensor
    ends: Tensor
    starts: Tensor
    keeps: Tensor | None

    @classmethod
    def of(cls, batch: AttentionBatch) -> LongerMembers:
        first = batch.num_decode
        keeps = None if batch.keeps is None else batch.keeps[first:]
        number = len(batch.query_lens) - first
        return cls(number, batch.rows[first:], batch.context_lens[first:], batch.query_starts[first:], keeps)


@triton.jit
def continues(rows, ends, starts, member, members):
    """Whether the member continues the row of the one before it. `starts`: where the tokens of members with several
    tokens begin in the step; None for members with a single token.
    """
    there = (member > 0) & (member < members)
    row = tl.load(rows + member, mask=there, other=-1)
    before = tl.load(rows + member - 1, mask=there, other=-2)
    if starts is None:
        end = tl.load(ends + member, mask=there, other=0)
        follows = (row == before) & (end == tl.load(ends + member - 1, mask=there, other=0) + 1)
    else:
        count = tl.load(starts + member + 1, mask=there, other=0) - tl.load(starts + member, mask=there, other=0)
        begin = tl.load(ends + member, mask=there, other=0) - count
        follows = (row == before) & (begin == tl.load(ends + member - 1, mask=there, other=0))
    return follows


@triton.jit
def run_length(rows, ends, starts, member, members):
    """The number of members that continue one row, from this one on; 0 if it continues another. `starts` as above."""
    count = 0
    going = continues(rows, ends, starts, member, members) == 0
    while going:
        count += 1
        going = continues(rows, ends, starts, member + count, members)
    return count


@triton.jit
def state_part(memory, row, head, value_at, key_at, HEADS: tl.constexpr, VALUES: tl.constexpr, KEYS: tl.constexpr):
    """Where a row's state in one head is stored for some values [values, keys], and which of its numbers exist."""
    place = memory + (row * HEADS + head) * VALUES * KEYS + value_at[:, None] * KEYS + key_at[None, :]
    return place, (value_at < VALUES)[:, None] & (key_at < KEYS)[None, :]


@triton.jit
def begin_run(
    memory, rows, ends, starts, member, members, head, value_at, key_at,
    HEADS: tl.constexpr, VALUES: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    """The number of members with several tokens that continue a row from this one on, the state before them, where it
    is stored, and which of its numbers exist: none if the member continues another.
    """
    run = run_length(rows, ends, starts, member, members)
    row = tl.load(rows + member).to(tl.int64)
    fresh = tl.load(ends + member) == tl.load(starts + member + 1) - tl.load(starts + member)
    place, inside = state_part(memory, row, head, value_at, key_at, HEADS, VALUES, KEYS)
    inside &= run > 0
    return run, tl.load(place, mask=inside & (fresh == 0), other=0.0).to(tl.float32), place, inside


@triton.jit
def keep_state(
    state, memory, keeps, member, head, value_at, key_at, inside,
    HEADS: tl.constexpr, VALUES: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    """Store the state after a member in the slot where it is kept, if it is."""
    if keeps is not None:
        slot = tl.load(keeps + member).to(tl.int64)
        place, _ = state_part(memory, slot, head, value_at, key_at, HEADS, VALUES, KEYS)
        tl.store(place, state.to(memory.dtype.element_ty), mask=inside & (slot >= 0))
