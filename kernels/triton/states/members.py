"""The members of a step, as recurrent layers compute them: single tokens in place, longer members in chunks.

A member with a single token may be followed by others that are consecutive tokens of its row: the first one's program
computes them all.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from thothy_ai.kernels.paged import AttentionBatch

CHUNK = 64  # tokens
DECODE_VALUES = 16  # of a head per program of one warp, whose sums wait for no other warp


def longer_members(batch: AttentionBatch) -> tuple[Tensor, Tensor, Tensor]:
    """Rows and ends of the members with several tokens, and where their tokens begin in the step."""
    first = batch.num_decode
    return batch.rows[first:], batch.context_lens[first:], batch.query_starts[first:]


@triton.jit
def goes_on(rows, ends, member, members):
    """Whether the member's token follows the one before it in the step, in the same row."""
    there = (member > 0) & (member < members)
    row = tl.load(rows + member, mask=there, other=-1)
    before = tl.load(rows + member - 1, mask=there, other=-2)
    end = tl.load(ends + member, mask=there, other=0)
    return (row == before) & (end == tl.load(ends + member - 1, mask=there, other=0) + 1)


@triton.jit
def run_length(rows, ends, member, members):
    """The number of consecutive tokens of one row from this member on; 0 if it follows another of the row."""
    count = 0
    going = goes_on(rows, ends, member, members) == 0
    while going:
        count += 1
        going = goes_on(rows, ends, member + count, members)
    return count


@triton.jit
def state_part(memory, row, head, value_at, key_at, HEADS: tl.constexpr, VALUES: tl.constexpr, KEYS: tl.constexpr):
    """Where a row's state in one head is stored for some values [values, keys], and which of its numbers exist."""
    place = memory + (row * HEADS + head) * VALUES * KEYS + value_at[:, None] * KEYS + key_at[None, :]
    return place, (value_at < VALUES)[:, None] & (key_at < KEYS)[None, :]
