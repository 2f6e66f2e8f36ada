"""The kernel of prefill attention: FlashAttention-2 (Dao, 2023) over pages, or over keys and values side by side.

A program owns one tile of rows of one KV head: every query head of that KV head for a few successive tokens, so that
keys and values are read once for all of them. Key tiles that every row sees come first and need no mask; those on the
diagonal follow. Under a window, tiles before it are skipped, and those in which a row's begins come first of all.
A tile of keys lies in one page, or spans several: then its block-table entries are gathered. The entries of the next
tile are loaded while this one is computed, so that its keys never wait for them.
"""

from __future__ import annotations

import triton
import triton.language as tl

from thothy_ai.kernels.fp8 import FP8_MAX
from thothy_ai.kernels.triton.attention.first_seen import first_seen
from thothy_ai.kernels.triton.attention.online_softmax import LOG2_E, finite_base, nonzero, soft_capped
from thothy_ai.kernels.triton.interpreter import INTERPRETED

_FP8_MAX = tl.constexpr(FP8_MAX)
_INTERPRETED = tl.constexpr(INTERPRETED)


@triton.jit(
    do_not_specialize=["table_row"],
    do_not_specialize_on_alignment=["block_tables", "rows", "tiles"],
)
def prefill_kernel(
    out, q, keys, values, key_scales, value_scales,
    sinks,  # [H] float32, or None
    block_tables, rows, tiles,
    out_token, out_head, q_token, q_head, kv_block, kv_slot, kv_head, scale_block, scale_slot, scale_head, table_row,
    scale,  # to powers of two
    KV_HEADS: tl.constexpr,
    HEADS: tl.constexpr,  # query heads of a KV head
    DIM: tl.constexpr,  # of values, and of keys but for REST
    DIM_PAD: tl.constexpr,
    REST: tl.constexpr,  # numbers of a key after those that are its value, or None: values are apart
    REST_PAD: tl.constexpr,
    PAGE: tl.constexpr,  # tokens of a block, or None: keys and values of a sequence lie side by side
    ROWS: tl.constexpr, KEYS: tl.constexpr,
    WINDOW: tl.constexpr,  # tokens that a query sees, or None
    CHUNKED: tl.constexpr,  # at most so many: those of its chunk
    SOFT_CAP: tl.constexpr,
):  # fmt: skip
    """One of `tiles` (`QueryTile`s) of q [T, H, D] for one KV head."""
    head = tl.program_id(0) % KV_HEADS
    tile = tiles + 5 * (tl.program_id(0) // KV_HEADS)
    table = block_tables + tl.load(rows + tl.load(tile)).to(tl.int64) * table_row
    first_token, first_position, left = tl.load(tile + 1), tl.load(tile + 2), tl.load(tile + 3)

    row = tl.arange(0, ROWS)
    dim = tl.arange(0, DIM_PAD)
    query = row // HEADS
    real = (row < ROWS // HEADS * HEADS) & (query < left)
    used = real[:, None] & (dim < DIM)[None, :]
    token, query_head = (first_token + query).to(tl.int64), head * HEADS + row % HEADS
    queries = q + (token * q_token + query_head * q_head)[:, None]
    factor = _queries(queries, real, DIM, DIM_PAD)
    factor_rest = None if REST is None else _queries(queries + DIM, real, REST, REST_PAD)
    position = first_position + query

    # The first row of the tile sees the fewest keys; all rows see those of the whole key tiles before.
    seen_by_all = (first_position + 1) // KEYS * KEYS
    end = first_position + tl.minimum(left, ROWS // HEADS)
    begin = 0
    seen = 0
    if WINDOW is not None:  # the last row's window begins last
        begin = tl.maximum(first_seen(first_position, WINDOW, CHUNKED), 0) // KEYS * KEYS
        seen = tl.cdiv(tl.maximum(first_seen(end - 1, WINDOW, CHUNKED), 0), KEYS) * KEYS
        seen_by_all = tl.maximum(seen_by_all, seen)
    head = head.to(tl.int64)
    keys, values = keys + head * kv_head, values + head * kv_head
    if PAGE is None:
        place = tl.load(tile + 4).to(tl.int64) * kv_slot
        keys, values = keys + place, values + place
    if key_scales is not None:
        key_scales, value_scales = key_scales + head * scale_head, value_scales + head * scale_head
    total = tl.zeros([ROWS, DIM_PAD], tl.float32)
    m_i = tl.full([ROWS], float("-inf"), tl.float32)
    l_i = tl.zeros([ROWS], tl.float32)
    if WINDOW is not None:
        total, m_i, l_i = _attend(
            total, m_i, l_i, factor, factor_rest, position, keys, values, key_scales, value_scales, table,
            begin, tl.minimum(seen, end), end - 1,
            kv_block, kv_slot, scale_block, scale_slot, scale, True, DIM, DIM_PAD, REST, REST_PAD,
            PAGE, KEYS, WINDOW, CHUNKED, SOFT_CAP,
        )  # fmt: skip
    for masked in tl.static_range(2):
        total, m_i, l_i = _attend(
            total, m_i, l_i, factor, factor_rest, position, keys, values, key_scales, value_scales, table,
            seen_by_all if masked else seen, end if masked else seen_by_all, end - 1,
            kv_block, kv_slot, scale_block, scale_slot, scale, masked, DIM, DIM_PAD, REST, REST_PAD,
            PAGE, KEYS, WINDOW, CHUNKED, SOFT_CAP,
        )  # fmt: skip
    if sinks is not None:  # where one outweighs all keys by far, their share becomes 0
        l_i += tl.exp2(tl.load(sinks + query_head) * LOG2_E - m_i)
    if key_scales is not None:
        l_i *= _FP8_MAX
    target = out + (token * out_token + query_head * out_head)[:, None] + dim[None, :]
    share = 1 / nonzero(l_i, WINDOW)
    tl.store(target, (total * share[:, None]).to(out.dtype.element_ty), mask=used)


@triton.jit
def _queries(pointers, real, WIDTH: tl.constexpr, WIDTH_PAD: tl.constexpr):
    """[ROWS, WIDTH_PAD]: WIDTH numbers from each pointer [ROWS, 1], then zeros; zeros in rows that are not real."""
    place = tl.arange(0, WIDTH_PAD)[None, :]
    queries = tl.load(pointers + place, mask=real[:, None] & (place < WIDTH), other=0.0)
    if _INTERPRETED:  # its dot is wrong on bfloat16
        queries = queries.to(tl.float32)
    return queries


@triton.jit
def _attend(
    total,  # [ROWS, DIM_PAD] of probabilities times values, relative to `m_i`
    m_i,  # [ROWS] score so far
    l_i,  # [ROWS], the sum of probabilities, relative to `m_i`
    factor,
    factor_rest,  # [ROWS, REST_PAD], or None
    position, keys, values, key_scales, value_scales, table,
    begin, end,
    last,  # key that any row sees
    kv_block, kv_slot, scale_block, scale_slot, scale,
    MASKED: tl.constexpr, DIM: tl.constexpr, DIM_PAD: tl.constexpr, REST: tl.constexpr, REST_PAD: tl.constexpr,
    PAGE: tl.constexpr, KEYS: tl.constexpr, WINDOW: tl.constexpr, CHUNKED: tl.constexpr, SOFT_CAP: tl.constexpr,
):  # fmt: skip
    """Fold keys [begin, end) into the rows' running sums; begin is a multiple of KEYS, and end too unless MASKED."""
    coming = _blocks(table, begin, last, PAGE, KEYS)
    for first in range(begin, end, KEYS):
        block = coming.to(tl.int64)
        coming = _blocks(table, first + KEYS, last, PAGE, KEYS)
        key = first + tl.arange(0, KEYS)
        inside = key < end
        k = _load(keys, block, first, inside, kv_block, kv_slot, MASKED, DIM, DIM_PAD, PAGE, KEYS).to(factor.dtype)
        scores = tl.dot(factor, tl.trans(k), input_precision="ieee")
        if REST is not None:
            rest = _load(
                keys + DIM, block, first, inside, kv_block, kv_slot, MASKED, REST, REST_PAD, PAGE, KEYS
            ).to(factor.dtype)  # fmt: skip
            scores = tl.dot(factor_rest, tl.trans(rest), scores, input_precision="ieee")
        if key_scales is not None:
            scale_at = block * scale_block + key % PAGE * scale_slot
            scores *= tl.load(key_scales + scale_at, mask=inside, other=0.0)[None, :]
        if SOFT_CAP is not None:
            scores = soft_capped(scores * scale, SOFT_CAP)
        if MASKED:
            visible = key[None, :] <= position[:, None]
            if WINDOW is not None:
                visible = visible & (key[None, :] >= first_seen(position, WINDOW, CHUNKED)[:, None])
            scores = tl.where(visible, scores, float("-inf"))
        if SOFT_CAP is None:
            m_new = tl.maximum(m_i, tl.max(scores, 1) * scale)
            base = finite_base(m_new, WINDOW)
            p = tl.exp2(scores * scale - base[:, None])
        else:  # exponents already
            m_new = tl.maximum(m_i, tl.max(scores, 1))
            base = finite_base(m_new, WINDOW)
            p = tl.exp2(scores - base[:, None])
        alpha = tl.exp2(m_i - base)
        l_i = l_i * alpha + tl.sum(p, 1)
        total = total * alpha[:, None]
        v = k
        if REST is None:
            v = _load(values, block, first, inside, kv_block, kv_slot, MASKED, DIM, DIM_PAD, PAGE, KEYS)
            v = v.to(factor.dtype)
        if value_scales is not None:  # times the largest stored value, so that float16 holds the product
            p *= tl.load(value_scales + scale_at, mask=inside, other=0.0)[None, :] * _FP8_MAX
        total = tl.dot(p.to(factor.dtype), v, total, input_precision="ieee")
        m_i = m_new
    return total, m_i, l_i


@triton.jit
def _blocks(table, first, last, PAGE: tl.constexpr, KEYS: tl.constexpr):
    """Of keys [first, first + KEYS): one block, or each key's where they span pages; beyond key `last`, its block.

    The table's entries for what comes after a sequence may be anything. Without pages: 0.
    """
    if PAGE is None:
        return tl.minimum(first, last) * 0
    else:  # noqa: RET505  of both, Triton compiles one
        key = first if PAGE % KEYS == 0 else first + tl.arange(0, KEYS)
        return tl.load(table + tl.minimum(key, last) // PAGE)


@triton.jit
def _load(
    part, block, first, inside, kv_block, kv_slot,
    MASKED: tl.constexpr, DIM: tl.constexpr, DIM_PAD: tl.constexpr, PAGE: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    """[KEYS, DIM_PAD]; zeros outside, so that slots that were never written (NaN perhaps) take no part."""
    within, dim = tl.arange(0, KEYS), tl.arange(0, DIM_PAD)
    if PAGE is None:
        pointers = part + first * kv_slot + ((within * kv_slot)[:, None] + dim[None, :])
    elif PAGE % KEYS == 0:  # every tile has the same 32-bit offsets, from another place
        pointers = part + (block * kv_block + first % PAGE * kv_slot) + ((within * kv_slot)[:, None] + dim[None, :])
    else:
        slot = within % PAGE if KEYS % PAGE == 0 else (first + within) % PAGE
        pointers = part + (block * kv_block)[:, None] + ((slot * kv_slot)[:, None] + dim[None, :])
    if MASKED or DIM_PAD > DIM:
        return tl.load(pointers, mask=inside[:, None] & (dim < DIM)[None, :], other=0.0)
    return tl.load(pointers)
