"""The kernel of decode attention: one KV head of one slot of the plan, sequence after sequence.

The query heads of that KV head, of one sequence or of all members of a group, are the rows of one tile, so that keys
and values are read once for all of them.
"""

from __future__ import annotations

import triton
import triton.language as tl

from thothy_ai.kernels.interpreter import INTERPRETED
from thothy_ai.kernels.quantize import FP8_MAX, TINY

_FP8_MAX = tl.constexpr(FP8_MAX)
_TINY = tl.constexpr(TINY)
_INTERPRETED = tl.constexpr(INTERPRETED)


@triton.jit(
    do_not_specialize=["table_row", "group_base"],
    do_not_specialize_on_alignment=["block_tables", "rows", "context_lens", "shared_lens", "group_sizes"],
)
def decode_kernel(
    out,
    partial_outputs,
    partial_weights,
    q,
    keys,
    values,
    key_scales,
    value_scales,
    block_tables,
    rows,
    context_lens,
    shared_lens,
    group_sizes,
    totals,
    own_starts,
    group_starts,
    group_members,
    slot_groups,
    slot_members,
    out_token,
    out_head,
    q_token,
    q_head,
    kv_block,
    kv_slot,
    kv_head,
    scale_block,
    scale_slot,
    scale_head,
    table_row,
    group_base,
    scale,  # to powers of two
    KV_HEADS: tl.constexpr,
    HEADS: tl.constexpr,  # query heads of a KV head
    HEADS_PAD: tl.constexpr,
    DIM: tl.constexpr,
    DIM_PAD: tl.constexpr,
    PAGE: tl.constexpr,
    TILE: tl.constexpr,
    AHEAD: tl.constexpr,
    GROUP_ROWS: tl.constexpr,
):
    """Program (slot, KV head), KV heads fastest: first the slot's tiles of shared prefixes, then those of sequences.

    All indices and lengths are those of `DecodePlan` and `AttentionBatch`; results of sequences that lie in this slot
    alone go to `out` [T, H, D], others to the partials.
    """
    slot = tl.program_id(0) // KV_HEADS
    head = tl.program_id(0) % KV_HEADS

    q += head * HEADS * q_head
    out += head * HEADS * out_head
    keys += head.to(tl.int64) * kv_head
    values += head.to(tl.int64) * kv_head
    if key_scales is not None:
        key_scales += head * scale_head
        value_scales += head * scale_head

    lead_rows: tl.constexpr = max(16, GROUP_ROWS * HEADS_PAD)
    own_rows: tl.constexpr = max(16, HEADS_PAD)
    dim = tl.arange(0, DIM_PAD)

    row = tl.arange(0, lead_rows)
    unit = tl.load(slot_groups + slot)
    place, end = _share(totals, slot)
    while place < end:
        member = tl.load(group_members + unit)
        start = tl.load(group_starts + member)
        length = tl.load(shared_lens + member)
        used = (row // HEADS_PAD < tl.load(group_sizes + member)) & (row % HEADS_PAD < HEADS)
        token = member + row // HEADS_PAD
        until = tl.minimum(end - start, tl.cdiv(length, TILE))
        output, weight = _attend(
            q + (token.to(tl.int64) * q_token + row % HEADS_PAD * q_head)[:, None] + dim[None, :], used,
            keys, values, key_scales, value_scales, block_tables + tl.load(rows + member).to(tl.int64) * table_row,
            (place - start) * TILE, tl.minimum(until * TILE, length),
            kv_block, kv_slot, scale_block, scale_slot, scale, lead_rows, DIM, DIM_PAD, PAGE, TILE, AHEAD,
        )  # fmt: skip
        number = (group_base + token + GROUP_ROWS * slot) * (KV_HEADS * HEADS) + head * HEADS + row % HEADS_PAD
        _store_partial(partial_outputs, partial_weights, number, output, weight, used, DIM, DIM_PAD)
        place = start + until
        unit += 1

    row = tl.arange(0, own_rows)
    used = row < HEADS
    unit = tl.load(slot_members + slot)
    place, end = _share(totals + 2, slot)
    while place < end:
        start = tl.load(own_starts + unit)
        shared = tl.load(shared_lens + unit)
        context = tl.load(context_lens + unit)
        tiles = tl.cdiv(context - shared, TILE)
        until = tl.minimum(end - start, tiles)
        output, weight = _attend(
            q + (unit.to(tl.int64) * q_token + row * q_head)[:, None] + dim[None, :], used,
            keys, values, key_scales, value_scales, block_tables + tl.load(rows + unit).to(tl.int64) * table_row,
            shared + (place - start) * TILE, tl.minimum(shared + until * TILE, context),
            kv_block, kv_slot, scale_block, scale_slot, scale, own_rows, DIM, DIM_PAD, PAGE, TILE, AHEAD,
        )  # fmt: skip
        if (shared == 0) & (place == start) & (until == tiles):
            target = out + (unit.to(tl.int64) * out_token + row * out_head)[:, None] + dim[None, :]
            tl.store(target, output.to(out.dtype.element_ty), mask=used[:, None] & (dim < DIM)[None, :])
        else:
            number = (unit + slot) * (KV_HEADS * HEADS) + head * HEADS + row
            _store_partial(partial_outputs, partial_weights, number, output, weight, used, DIM, DIM_PAD)
        place = start + until
        unit += 1


@triton.jit
def _share(totals, slot):
    """Places of the slot's share of a line: from, to."""
    share = tl.load(totals)
    return slot * share, tl.minimum((slot + 1) * share, tl.load(totals + 1))


@triton.jit
def _attend(
    queries,  # [ROWS, DIM_PAD] pointers
    used,  # [ROWS]
    keys,
    values,
    key_scales,
    value_scales,
    table,
    begin,
    end,
    kv_block,
    kv_slot,
    scale_block,
    scale_slot,
    scale,
    ROWS: tl.constexpr,
    DIM: tl.constexpr,
    DIM_PAD: tl.constexpr,
    PAGE: tl.constexpr,
    TILE: tl.constexpr,
    AHEAD: tl.constexpr,
):
    """Attention of ROWS queries to tokens [begin, end) of a block table, and its log2-sum-exp2 per row.

    `begin` is a multiple of PAGE plus one of TILE, so a tile lies within a page where TILE divides PAGE.
    """
    dim = tl.arange(0, DIM_PAD)
    query = tl.load(queries, mask=used[:, None] & (dim < DIM)[None, :], other=0.0)
    factor = tl.zeros([ROWS], tl.float32) + scale
    if key_scales is not None:  # fp8 becomes float16 in half the instructions that bfloat16 takes
        query, unit = _fitted(query)
        factor *= unit
    elif _INTERPRETED:
        query = query.to(tl.float32)
    total = tl.zeros([ROWS, DIM_PAD], tl.float32)
    peak = tl.full([ROWS], float("-inf"), tl.float32)
    weight = tl.zeros([ROWS], tl.float32)
    # Tiles wait for their block numbers, which are loaded as far ahead of them as they are of their use.
    for first in tl.range(begin, end, TILE, num_stages=2 * AHEAD + 1):
        token = first + tl.arange(0, TILE)
        inside = token < end
        present = inside[:, None] & (dim < DIM)[None, :]
        block = tl.load(table + token // PAGE, mask=inside, other=0).to(tl.int64)
        at = block * kv_block + token % PAGE * kv_slot
        scale_at = block * scale_block + token % PAGE * scale_slot
        key = tl.load(keys + at[:, None] + dim[None, :], mask=present, other=0.0).to(query.dtype)
        scores = tl.dot(query, tl.trans(key), input_precision="ieee") * factor[:, None]
        if key_scales is not None:
            scores *= tl.load(key_scales + scale_at, mask=inside, other=0.0)[None, :]
        scores = tl.where(inside[None, :], scores, float("-inf"))
        higher = tl.maximum(peak, tl.max(scores, 1))
        chance = tl.exp2(scores - higher[:, None])
        fade = tl.exp2(peak - higher)
        weight = weight * fade + tl.sum(chance, 1)
        value = tl.load(values + at[:, None] + dim[None, :], mask=present, other=0.0).to(query.dtype)
        if value_scales is not None:  # times the largest stored value, so that float16 holds the product
            chance *= tl.load(value_scales + scale_at, mask=inside, other=0.0)[None, :] * _FP8_MAX
        total = tl.dot(chance.to(query.dtype), value, total * fade[:, None], input_precision="ieee")
        peak = higher
    if value_scales is not None:
        total /= _FP8_MAX
    return total / weight[:, None], peak + tl.log2(weight)


@triton.jit
def _fitted(query):
    """Rows over powers of two, so that float16 holds them, and those powers; float32 stays float32."""
    wide = query.to(tl.float32)
    largest = tl.maximum(tl.max(tl.abs(wide), 1), _TINY)
    unit = (largest.to(tl.int32, bitcast=True) & 0x7F800000).to(tl.float32, bitcast=True)
    return (wide / unit[:, None]).to(tl.float32 if query.dtype == tl.float32 else tl.float16), unit


@triton.jit
def _store_partial(outputs, weights, number, output, weight, used, DIM: tl.constexpr, DIM_PAD: tl.constexpr):
    dim = tl.arange(0, DIM_PAD)
    tl.store(weights + number, weight, mask=used)
    tl.store(outputs + number[:, None] * DIM + dim[None, :], output, mask=used[:, None] & (dim < DIM)[None, :])
