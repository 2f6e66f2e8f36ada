"""Causal attention of the sequences that prefill, over the paged cache: FlashAttention-2 (Dao, 2023) in Triton.

A program owns one tile of rows of one KV head: every query head of that KV head for a few successive tokens, so that
keys and values are read once for all of them. Key tiles that every row sees come first and need no mask; those on the
diagonal follow. A tile of keys lies in one page, or spans several: then its block-table entries are gathered. The
entries of the next tile are loaded while this one is computed, so that its keys never wait for them.
Over an fp8 cache only the tokens before the step's are read from it, and become float16 (bfloat16 takes twice the
instructions); the step's own are read from where the cache's writer left them in 16 bits.
Programs of one tile lie side by side in the grid, and tiles of one sequence too: they find its pages in the L2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, count
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from thothy_ai.kernels.fp8 import FP8_MAX
from thothy_ai.kernels.paged import PLAIN, AttentionBatch, AttentionParams, AttentionShape, FreshKV, LayerCache
from thothy_ai.kernels.triton.attention.online_softmax import exponent_scale, finite_base, fitted, nonzero, soft_capped
from thothy_ai.kernels.triton.interpreter import INTERPRETED
from thothy_ai.kernels.triton.sms import SMs
from thothy_ai.kernels.triton.tiles import power_of_two

_FP8_MAX = tl.constexpr(FP8_MAX)
_INTERPRETED = tl.constexpr(INTERPRETED)
_MIN_DIM = 16  # that tensor cores take


@dataclass(frozen=True)
class Tiling:
    """A program's tile of `rows` (query heads x tokens) and `keys` at a time, and how it is compiled."""

    rows: int
    keys: int
    warps: int
    stages: int

    @staticmethod
    def suited(shape: AttentionShape) -> Tiling:
        """What an H200 runs fastest (benchmarks/kernels/prefill_attention.py), as far as the device holds it."""
        if shape.dtype == torch.float32:  # has no tensor cores here
            tiling = Tiling(rows=32, keys=16 if shape.head_dim > 128 else 32, warps=8, stages=1)
        elif shape.head_dim > 128:
            tiling = Tiling(rows=128, keys=64, warps=8, stages=2)
        else:
            tiling = Tiling(rows=128, keys=32, warps=4, stages=3)
        if shape.device.type != "cuda":
            return tiling
        shared = SMs.of(shape.device).shared_of_program
        return tiling.within(shared // (power_of_two(shape.head_dim, _MIN_DIM) * shape.dtype.itemsize))

    def within(self, vectors: int) -> Tiling:
        """With so few keys that queries, keys and values of all stages are at most `vectors` of a head; 16 at least."""
        keys = self.keys
        while keys > 16 and self.rows + 2 * self.stages * keys > vectors:
            keys //= 2
        return replace(self, keys=keys)


class QueryTile(NamedTuple):
    """Where it begins: `token` of the step, `position` in its sequence; `left` of whose queries are not before it, and
    `before` of whose tokens precede the step's.
    """

    member: int
    token: int
    position: int
    left: int
    before: int


class PrefillAttention:
    """Attention of a step's sequences that come after its decode sequences."""

    def __init__(self, shape: AttentionShape, tiling: Tiling | None = None) -> None:
        self._shape = shape
        tiling = tiling or Tiling.suited(shape)
        self._tiling = replace(tiling, rows=max(tiling.rows, triton.next_power_of_2(shape.heads_per_kv)))
        self._tiles: Tensor | None = None

    def plan(self, batch: AttentionBatch) -> None:
        """Send the step's tiles; nothing is sent for a step that only decodes."""
        tiles = query_tiles(
            batch.query_lens, batch.kv_lens, batch.num_decode, self._tiling.rows // self._shape.heads_per_kv
        )
        self._tiles = _to_device(tiles, self._shape.device) if tiles else None

    def __call__(
        self,
        q: Tensor,
        cache: LayerCache,
        batch: AttentionBatch,
        out: Tensor,
        params: AttentionParams = PLAIN,
        fresh: FreshKV | None = None,
    ) -> None:
        """Fill the rows of `out` [T, H, D] that belong to sequences [num_decode:] of the planned batch; q [T, H, D].

        Keys and values have the same strides, and each head's dimensions lie next to each other, in q and out too.
        Without `fresh`, contiguous, all is read from the cache.
        """
        if self._tiles is None:
            return
        if cache.keys.stride() != cache.values.stride():
            raise ValueError(f"keys {cache.keys.stride()} and values {cache.values.stride()} differ in strides")
        shape, tiling = self._shape, self._tiling
        key_scales, value_scales = cache.key_scales, cache.value_scales
        _prefill_kernel[(len(self._tiles) * shape.num_kv_heads,)](
            out, q, cache.keys, cache.values, key_scales, value_scales, *(fresh or (None, None)),
            batch.block_tables, batch.rows, self._tiles,
            *out.stride()[:2], *q.stride()[:2], *cache.keys.stride()[:3],
            *((0, 0, 0) if key_scales is None else key_scales.stride()),
            batch.block_tables.stride(0), exponent_scale(params, shape.head_dim),
            KV_HEADS=shape.num_kv_heads, HEADS=shape.heads_per_kv, DIM=shape.head_dim,
            DIM_PAD=power_of_two(shape.head_dim, _MIN_DIM), PAGE=shape.block_size, ROWS=tiling.rows, KEYS=tiling.keys,
            WINDOW=params.window, SOFT_CAP=params.soft_cap,
            num_warps=tiling.warps, num_stages=tiling.stages,
        )  # fmt: skip


def query_tiles(query_lens: Sequence[int], kv_lens: Sequence[int], first_member: int, tokens: int) -> list[QueryTile]:
    """Tiles of `tokens` queries each: the longest sequences first, and a sequence's tiles that see the most keys."""
    starts = accumulate(query_lens, initial=0)
    spans = list(zip(count(), starts, query_lens, kv_lens, strict=False))[first_member:]
    spans.sort(key=lambda span: span[-1], reverse=True)
    return [
        QueryTile(member, start + first, context - queries + first, queries - first, context - queries)
        for member, start, queries, context in spans
        for first in reversed(range(0, queries, tokens))
    ]


def _to_device(tiles: list[QueryTile], device: torch.device) -> Tensor:
    """Fresh pinned memory each time: torch hands it out again only after the copy is done."""
    staged = torch.tensor(tiles, dtype=torch.int32, pin_memory=device.type == "cuda")
    return staged.to(device, non_blocking=True)


@triton.jit(
    do_not_specialize=["table_row"],
    do_not_specialize_on_alignment=["block_tables", "rows", "tiles"],
)
def _prefill_kernel(
    out, q, keys, values, key_scales, value_scales, fresh_keys, fresh_values, block_tables, rows, tiles,
    out_token, out_head, q_token, q_head, kv_block, kv_slot, kv_head, scale_block, scale_slot, scale_head, table_row,
    scale,  # to powers of two
    KV_HEADS: tl.constexpr,
    HEADS: tl.constexpr,  # query heads of a KV head
    DIM: tl.constexpr, DIM_PAD: tl.constexpr, PAGE: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr,
    WINDOW: tl.constexpr,  # tokens that a query sees, or None
    SOFT_CAP: tl.constexpr,
):  # fmt: skip
    head = tl.program_id(0) % KV_HEADS
    tile = tiles + 5 * (tl.program_id(0) // KV_HEADS)
    table = block_tables + tl.load(rows + tl.load(tile)).to(tl.int64) * table_row
    first_token, first_position, left = tl.load(tile + 1), tl.load(tile + 2), tl.load(tile + 3)

    row = tl.arange(0, ROWS)
    dim = tl.arange(0, DIM_PAD)
    query = row // HEADS
    used = ((row < ROWS // HEADS * HEADS) & (query < left))[:, None] & (dim < DIM)[None, :]
    token, query_head = (first_token + query).to(tl.int64), head * HEADS + row % HEADS
    queries = q + (token * q_token + query_head * q_head)[:, None] + dim[None, :]
    position = first_position + query

    head = head.to(tl.int64)
    end = first_position + tl.minimum(left, ROWS // HEADS)
    total = tl.zeros([ROWS, DIM_PAD], tl.float32)
    m_i = tl.full([ROWS], float("-inf"), tl.float32)
    l_i = tl.zeros([ROWS], tl.float32)

    keys, values = keys + head * kv_head, values + head * kv_head
    factor = _load_queries(queries, used)
    factor_scale = scale
    cached = end
    if key_scales is not None:
        key_scales, value_scales = key_scales + head * scale_head, value_scales + head * scale_head
        factor, unit = fitted(factor)
        factor_scale = unit * scale
    if fresh_keys is not None:
        cached = tl.load(tile + 4)
    whole = _seen_by_all(first_position, cached, KEYS, WINDOW)
    for masked in tl.static_range(0 if WINDOW is None else 1, 2):
        total, m_i, l_i = _attend(
            total, m_i, l_i, factor, position, keys, values, key_scales, value_scales, table,
            whole if masked else 0, cached if masked else whole, tl.maximum(cached - 1, 0),
            kv_block, kv_slot, scale_block, scale_slot, factor_scale, masked,
            DIM, DIM_PAD, PAGE, KEYS, WINDOW, SOFT_CAP,
        )  # fmt: skip
    if key_scales is not None:
        total *= 1 / _FP8_MAX
    if fresh_keys is not None:  # as one page, whose first token is that after the cached ones
        factor = _load_queries(queries, used)
        at = (first_token - (first_position - cached)).to(tl.int64) * (KV_HEADS * DIM) + head * DIM
        whole = _seen_by_all(first_position - cached, end - cached, KEYS, WINDOW)
        for masked in tl.static_range(0 if WINDOW is None else 1, 2):
            total, m_i, l_i = _attend(
                total, m_i, l_i, factor, position - cached, fresh_keys + at, fresh_values + at, None, None, None,
                whole if masked else 0, end - cached if masked else whole, end - cached - 1,
                0, KV_HEADS * DIM, 0, 0, scale, masked, DIM, DIM_PAD, None, KEYS, WINDOW, SOFT_CAP,
            )  # fmt: skip
    target = out + (token * out_token + query_head * out_head)[:, None] + dim[None, :]
    share = 1 / nonzero(l_i, WINDOW)
    tl.store(target, (total * share[:, None]).to(out.dtype.element_ty), mask=used)


@triton.jit
def _load_queries(queries, used):
    """[ROWS, DIM_PAD], zeros outside."""
    factor = tl.load(queries, mask=used, other=0.0)
    if _INTERPRETED:  # its dot is wrong on bfloat16
        factor = factor.to(tl.float32)
    return factor


@triton.jit
def _seen_by_all(first_position, end, KEYS: tl.constexpr, WINDOW: tl.constexpr):
    """Where the tiles of keys end that every row sees, the first of which sees the fewest; under a window, where the
    tiles begin that some row sees: all of these are masked.
    """
    before = tl.minimum(first_position + 1, end) if WINDOW is None else tl.maximum(first_position + 1 - WINDOW, 0)
    return before // KEYS * KEYS


@triton.jit
def _attend(
    total,  # [ROWS, DIM_PAD] of probabilities times values (and _FP8_MAX, if they are scaled), relative to `m_i`
    m_i,  # [ROWS] score so far
    l_i,  # [ROWS], the sum of probabilities, relative to `m_i`
    factor, position, keys, values, key_scales, value_scales, table,
    begin, end,
    last,  # key that any row sees
    kv_block, kv_slot, scale_block, scale_slot,
    scale,  # to powers of two; of each row [ROWS], if keys are scaled
    MASKED: tl.constexpr, DIM: tl.constexpr, DIM_PAD: tl.constexpr,
    PAGE: tl.constexpr,  # or None: all keys lie in one
    KEYS: tl.constexpr, WINDOW: tl.constexpr, SOFT_CAP: tl.constexpr,
):  # fmt: skip
    """Fold keys [begin, end) into the rows' running sums; begin is a multiple of KEYS, and end too unless MASKED."""
    exponents = scale
    if key_scales is not None:
        exponents = scale[:, None]
    coming = _blocks(table, begin, last, PAGE, KEYS)
    for first in range(begin, end, KEYS):
        block = coming.to(tl.int64)
        coming = _blocks(table, first + KEYS, last, PAGE, KEYS)
        key = first + tl.arange(0, KEYS)
        inside = key < end
        k = _load(keys, block, first, inside, kv_block, kv_slot, MASKED, DIM, DIM_PAD, PAGE, KEYS).to(factor.dtype)
        scores = tl.dot(factor, tl.trans(k), input_precision="ieee")
        if key_scales is not None:
            scale_at = block * scale_block + key % PAGE * scale_slot
            scores *= tl.load(key_scales + scale_at, mask=inside, other=0.0)[None, :]
        if SOFT_CAP is not None:
            scores = soft_capped(scores * exponents, SOFT_CAP)
        if MASKED:
            visible = inside[None, :] & (key[None, :] <= position[:, None])
            if WINDOW is not None:
                visible = visible & (key[None, :] > position[:, None] - WINDOW)
            scores = tl.where(visible, scores, float("-inf"))
        if SOFT_CAP is None:
            m_new = tl.maximum(m_i, tl.max(scores, 1) * scale)
            base = finite_base(m_new, WINDOW)
            p = tl.exp2(scores * exponents - base[:, None])
        else:  # exponents already
            m_new = tl.maximum(m_i, tl.max(scores, 1))
            base = finite_base(m_new, WINDOW)
            p = tl.exp2(scores - base[:, None])
        alpha = tl.exp2(m_i - base)
        l_i = l_i * alpha + tl.sum(p, 1)
        total = total * alpha[:, None]
        v = _load(values, block, first, inside, kv_block, kv_slot, MASKED, DIM, DIM_PAD, PAGE, KEYS).to(factor.dtype)
        if value_scales is not None:  # times the largest stored value, so that float16 holds the product
            p *= tl.load(value_scales + scale_at, mask=inside, other=0.0)[None, :] * _FP8_MAX
        total = tl.dot(p.to(factor.dtype), v, total, input_precision="ieee")
        m_i = m_new
    return total, m_i, l_i


@triton.jit
def _blocks(table, first, last, PAGE: tl.constexpr, KEYS: tl.constexpr):
    """Of keys [first, first + KEYS): one block, or each key's where they span pages; beyond key `last`, its block.

    The table's entries for what comes after a sequence may be anything.
    """
    if PAGE is None:
        return tl.minimum(first, last) * 0
    else:  # noqa: RET505  Triton compiles one branch
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
