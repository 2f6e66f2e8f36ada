"""Unpacks pages of an fp8 cache for prefill attention, which reads each key and value many times.

A tile of fp8 that tensor cores multiply goes through registers and shared memory once more, for every tile of queries
that reads it: that takes as long as the attention itself (on an H200, prefill over an fp8 cache took 1.9 times as long
as over bfloat16). Unpacked once per layer, it moves five bytes instead of one for each number, and most of them in the
L2. The numbers are those that the reference computes with, and do not depend on how a prompt is cut into chunks.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from thothy_ai.kernels.paged import AttentionBatch, AttentionShape, LayerCache
from thothy_ai.kernels.triton.attention.prefill_plan import UNPACKED_TOKENS
from thothy_ai.kernels.triton.tiles import power_of_two

_BYTES = 128 << 20
_MIN_DIM = 16


class UnpackedKV:
    """Room for keys and values of `capacity` tokens, side by side [tokens, kv_heads, head_dim] in the queries' type."""

    def __init__(self, shape: AttentionShape, capacity: int | None = None) -> None:
        numbers = shape.num_kv_heads * shape.head_dim
        self.capacity = capacity or _BYTES // (2 * numbers * shape.dtype.itemsize)
        size = (2, self.capacity, shape.num_kv_heads, shape.head_dim)
        self._parts = torch.empty(size, dtype=shape.dtype, device=shape.device)

    def fill(self, cache: LayerCache, batch: AttentionBatch, tiles: Tensor) -> LayerCache:
        """Unpack `tiles` ([N, 3] int32 of `UnpackTile`s); keys and values as one block, valid until the next call."""
        if cache.key_scales is None or cache.value_scales is None:
            raise ValueError("a cache without scales is not packed")
        _, page, kv_heads, dim = cache.keys.shape
        keys, values = self._parts
        tables = batch.block_tables[cache.table]
        _unpack_kernel[(len(tiles) * kv_heads,)](
            keys, values, *cache[:4], tables, batch.rows, batch.context_lens, tiles,
            *cache.keys.stride()[:3], *cache.key_scales.stride(), tables.stride(0),
            KV_HEADS=kv_heads, DIM=dim, DIM_PAD=power_of_two(dim, _MIN_DIM), PAGE=page, TOKENS=UNPACKED_TOKENS,
        )  # fmt: skip
        return LayerCache(keys[None], values[None])


@triton.jit(
    do_not_specialize=["table_row"],
    do_not_specialize_on_alignment=["block_tables", "rows", "context_lens", "tiles"],
)
def _unpack_kernel(
    out_keys, out_values, keys, values, key_scales, value_scales, block_tables, rows, context_lens, tiles,
    kv_block, kv_slot, kv_head, scale_block, scale_slot, scale_head, table_row,
    KV_HEADS: tl.constexpr, DIM: tl.constexpr, DIM_PAD: tl.constexpr, PAGE: tl.constexpr, TOKENS: tl.constexpr,
):  # fmt: skip
    head = (tl.program_id(0) % KV_HEADS).to(tl.int64)
    tile = tiles + 3 * (tl.program_id(0) // KV_HEADS)
    member, place = tl.load(tile), tl.load(tile + 2)
    token = tl.load(tile + 1) + tl.arange(0, TOKENS)
    inside = token < tl.load(context_lens + member)
    table = block_tables + tl.load(rows + member).to(tl.int64) * table_row
    block = tl.load(table + token // PAGE, mask=inside, other=0).to(tl.int64)
    at = block * kv_block + token % PAGE * kv_slot + head * kv_head
    scale_at = block * scale_block + token % PAGE * scale_slot + head * scale_head
    target = (place + token).to(tl.int64) * (KV_HEADS * DIM) + head * DIM
    _unpack(out_keys, target, keys, at, key_scales, scale_at, inside, DIM, DIM_PAD)
    _unpack(out_values, target, values, at, value_scales, scale_at, inside, DIM, DIM_PAD)


@triton.jit
def _unpack(out, target, part, at, scales, scale_at, inside, DIM: tl.constexpr, DIM_PAD: tl.constexpr):
    """Numbers [TOKENS, DIM] times their tokens' scales."""
    dim = tl.arange(0, DIM_PAD)
    used = inside[:, None] & (dim < DIM)[None, :]
    packed = tl.load(part + at[:, None] + dim[None, :], mask=used, other=0.0)
    scale = tl.load(scales + scale_at, mask=inside, other=0.0)
    numbers = (packed.to(tl.float32) * scale[:, None]).to(out.dtype.element_ty)
    tl.store(out + target[:, None] + dim[None, :], numbers, mask=used)
