"""The kernel of decode attention: one KV head of one slot of the plan, sequence after sequence.

The query heads of that KV head, of one sequence or of all members of a group, are the rows of one tile, so that keys
and values are read once for all of them. Under a window the plan has no tiles before it; where it begins follows from
`context_lens`, so that a CUDA graph stays valid.
"""

from __future__ import annotations

import triton
import triton.language as tl

from thothy_ai.kernels.triton.attention.decode_plan import group_tiles, skipped_tiles
from thothy_ai.kernels.triton.attention.first_seen import first_seen
from thothy_ai.kernels.triton.attention.online_softmax import LOG2_E, attend, attend_fp8

_MAX_INT32 = tl.constexpr(2**31 - 1)


@triton.jit(
    do_not_specialize=["table_row", "group_base"],
    do_not_specialize_on_alignment=["block_tables", "rows", "context_lens", "shared_lens", "group_sizes"],
)
def decode_kernel(
    out, partial_outputs, partial_lse, q, keys, values, key_scales, value_scales,
    sinks,  # [H] float32, or None
    block_tables, rows, context_lens, shared_lens, group_sizes,
    totals, own_starts, group_starts, group_members, slot_groups, slot_members, group_skipped,
    out_token, out_head, q_token, q_head, kv_block, kv_slot, kv_head, scale_block, scale_slot, scale_head,
    table_row, group_base,
    scale,  # to powers of two
    KV_HEADS: tl.constexpr,
    HEADS: tl.constexpr,  # query heads of a KV head
    HEADS_PAD: tl.constexpr,
    DIM: tl.constexpr,  # of values, and of keys but for REST
    DIM_PAD: tl.constexpr, REST: tl.constexpr, REST_PAD: tl.constexpr, PAGE: tl.constexpr, TILE: tl.constexpr,
    AHEAD: tl.constexpr, GROUP_ROWS: tl.constexpr,
    WINDOW: tl.constexpr,  # tokens that a query sees, or None
    CHUNKED: tl.constexpr,  # at most so many: those of its chunk
    SOFT_CAP: tl.constexpr,
):  # fmt: skip
    """Program (slot, KV head), KV heads fastest: first the slot's tiles of shared prefixes, then those of sequences.

    All indices and lengths are those of `DecodePlan` and `AttentionBatch`; results of sequences that lie in this slot
    alone go to `out` [T, H, V], others to the partials.
    """
    slot = tl.program_id(0) // KV_HEADS
    head = tl.program_id(0) % KV_HEADS

    q += head * HEADS * q_head
    out += head * HEADS * out_head
    keys += head.to(tl.int64) * kv_head
    values += head.to(tl.int64) * kv_head
    if key_scales is not None:
        key_scales, value_scales = key_scales + head * scale_head, value_scales + head * scale_head

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
        origin, tiles = _group_part(group_skipped, member, length, TILE, WINDOW)
        until = tl.minimum(end - start, tiles)
        output, lse = _attend(
            q + (token.to(tl.int64) * q_token + row % HEADS_PAD * q_head), used,
            keys, values, key_scales, value_scales, block_tables + tl.load(rows + member).to(tl.int64) * table_row,
            origin + (place - start) * TILE, tl.minimum(origin + until * TILE, length), context_lens + token,
            kv_block, kv_slot, scale_block, scale_slot, scale, lead_rows, DIM, DIM_PAD, REST, REST_PAD,
            PAGE, TILE, AHEAD, WINDOW, CHUNKED, SOFT_CAP,
        )  # fmt: skip
        number = (group_base + token + GROUP_ROWS * slot) * (KV_HEADS * HEADS) + head * HEADS + row % HEADS_PAD
        _store_partial(partial_outputs, partial_lse, number, output, lse, used, DIM, DIM_PAD)
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
        origin, tiles, alone = _own_part(group_skipped, unit, context, shared, TILE, WINDOW, CHUNKED)
        until = tl.minimum(end - start, tiles)
        output, lse = _attend(
            q + (unit.to(tl.int64) * q_token + row * q_head), used,
            keys, values, key_scales, value_scales, block_tables + tl.load(rows + unit).to(tl.int64) * table_row,
            origin + (place - start) * TILE, tl.minimum(origin + until * TILE, context), context_lens + unit + row * 0,
            kv_block, kv_slot, scale_block, scale_slot, scale, own_rows, DIM, DIM_PAD, REST, REST_PAD,
            PAGE, TILE, AHEAD, WINDOW, CHUNKED, SOFT_CAP,
        )  # fmt: skip
        if alone & (place == start) & (until == tiles):
            if sinks is not None:
                sink = tl.load(sinks + head * HEADS + row, mask=used, other=0.0)
                output /= (1.0 + tl.exp2(sink * LOG2_E - lse))[:, None]
            target = out + (unit.to(tl.int64) * out_token + row * out_head)[:, None] + dim[None, :]
            tl.store(target, output.to(out.dtype.element_ty), mask=used[:, None] & (dim < DIM)[None, :])
        else:
            number = (unit + slot) * (KV_HEADS * HEADS) + head * HEADS + row
            _store_partial(partial_outputs, partial_lse, number, output, lse, used, DIM, DIM_PAD)
        place = start + until
        unit += 1


@triton.jit
def _share(totals, slot):
    """Places of the slot's share of a line: from, to."""
    share = tl.load(totals)
    return slot * share, tl.minimum((slot + 1) * share, tl.load(totals + 1))


@triton.jit
def _group_part(group_skipped, member, shared, TILE: tl.constexpr, WINDOW: tl.constexpr):
    """The first token of the tiles of a group's prefix, and how many there are."""
    origin = 0
    if WINDOW is not None:
        origin = tl.load(group_skipped + member) * TILE
    return origin, group_tiles(group_skipped, member, shared, TILE, WINDOW)


@triton.jit
def _own_part(group_skipped, member, context, shared, TILE: tl.constexpr, WINDOW: tl.constexpr, CHUNKED: tl.constexpr):
    """The first token of a sequence's own tiles, how many there are, and whether it has no others."""
    origin = shared
    tiles = tl.cdiv(context - shared, TILE)
    alone = shared == 0
    if WINDOW is not None:
        skipped = skipped_tiles(context, shared, TILE, WINDOW, CHUNKED)
        origin += skipped * TILE
        tiles -= skipped
        alone = group_tiles(group_skipped, member, shared, TILE, WINDOW) == 0
    return origin, tiles, alone


@triton.jit
def _attend(
    queries,  # [ROWS] pointers
    used,  # [ROWS]
    keys, values, key_scales, value_scales, table,
    begin, end,
    contexts,  # [ROWS] pointers
    kv_block, kv_slot, scale_block, scale_slot, scale,
    ROWS: tl.constexpr, DIM: tl.constexpr, DIM_PAD: tl.constexpr, REST: tl.constexpr, REST_PAD: tl.constexpr,
    PAGE: tl.constexpr, TILE: tl.constexpr, AHEAD: tl.constexpr,
    WINDOW: tl.constexpr, CHUNKED: tl.constexpr, SOFT_CAP: tl.constexpr,
):  # fmt: skip
    """`attend` or `attend_fp8`, each row from its window on."""
    dim = tl.arange(0, DIM_PAD)
    query = tl.load(queries[:, None] + dim[None, :], mask=used[:, None] & (dim < DIM)[None, :], other=0.0)
    rest = None
    if REST is not None:
        dim = tl.arange(0, REST_PAD)
        rest = tl.load(queries[:, None] + (DIM + dim)[None, :], mask=used[:, None] & (dim < REST)[None, :], other=0.0)
    oldest = begin  # without a window nothing uses it
    if WINDOW is not None:
        oldest = first_seen(tl.load(contexts, mask=used, other=_MAX_INT32) - 1, WINDOW, CHUNKED)
    if key_scales is None:
        output, lse = attend(
            query, rest, keys, values, table, begin, end, oldest,
            kv_block, kv_slot, scale, ROWS, DIM, DIM_PAD, REST, REST_PAD, PAGE, TILE, AHEAD, WINDOW, SOFT_CAP,
        )  # fmt: skip
    else:
        output, lse = attend_fp8(
            query, keys, values, key_scales, value_scales, table, begin, end, oldest,
            kv_block, kv_slot, scale_block, scale_slot, scale, ROWS, DIM, DIM_PAD, PAGE, TILE, AHEAD,
            WINDOW, SOFT_CAP,
        )  # fmt: skip
    return output, lse


@triton.jit
def _store_partial(outputs, lses, number, output, lse, used, DIM: tl.constexpr, DIM_PAD: tl.constexpr):
    dim = tl.arange(0, DIM_PAD)
    tl.store(lses + number, lse, mask=used)
    tl.store(outputs + number[:, None] * DIM + dim[None, :], output, mask=used[:, None] & (dim < DIM)[None, :])
