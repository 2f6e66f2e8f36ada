"""Attention over a paged KV cache: the plain-torch reference.

It is also the path of production on a CPU. It never computes with a slot that no sequence wrote, so what stale blocks
hold (NaN included) cannot reach a result.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

import torch
from torch import Tensor
from torch.nn import functional

from thothy_ai.kernels.paged import AttentionBatch, AttentionShape, LayerCache

# Decode rows of similar length share one call: more rows save calls, padding to the longest costs reads.
_GROUP_ROWS = 8
_GROUP_PADDING = 0.1


class PagedAttention:
    """Plain torch; groups spare it nothing, so it wants none."""

    group_rows = 1

    def __init__(self, shape: AttentionShape) -> None:
        self._scale = shape.scale
        self._batch: AttentionBatch | None = None

    def plan(self, batch: AttentionBatch) -> None:
        """Take the step's batch."""
        self._batch = batch

    def __call__(self, q: Tensor, cache: LayerCache) -> Tensor:
        """q [T, H, D] -> [T, H, D]."""
        if self._batch is None:
            raise RuntimeError("attention was not planned")
        return paged_attention(q, cache, self._batch, self._scale)


def paged_attention(q: Tensor, cache: LayerCache, batch: AttentionBatch, scale: float) -> Tensor:
    """Causal attention of q [T, H, D] -> [T, H, D].

    The query at offset i of a sequence with n queries and context L sees keys [0, L - n + i]. This step's keys and
    values are in the cache already. T may exceed the batch's tokens: padded rows come back as zeros.
    """
    out = torch.zeros_like(q)
    block_size = cache.keys.shape[1]
    for group in _decode_groups(batch, block_size):
        _decode(q, cache, group, scale, out)
    for span in _prefills(batch, block_size):
        _prefill(q, cache, span, scale, out)
    return out


@dataclass(frozen=True, eq=False)
class _DecodeGroup:
    """R decode rows of similar length, padded to L slots of whole blocks."""

    rows: Tensor  # [R] into q
    blocks: Tensor  # [R * L / block_size]
    mask: Tensor  # [R, 1, 1, L] bool, True where a row sees a slot
    unseen: Tensor  # indices into the flat [R * L] slots that no row sees


@dataclass(frozen=True, eq=False)
class _PrefillSpan:
    """One sequence's queries [start, start + count) and its context of `length` tokens."""

    start: int
    count: int
    length: int
    blocks: Tensor
    mask: Tensor | None  # [count, length] bool; None when the whole context is queried


def _decode(q: Tensor, cache: LayerCache, group: _DecodeGroup, scale: float, out: Tensor) -> None:
    """One call for the group; the query heads of a KV head are its query axis, so K and V are read once for them."""
    rows, (heads, dim), kv_heads = len(group.rows), q.shape[1:], cache.keys.shape[2]
    keys, values = (
        blocks.view(-1, kv_heads * dim).index_fill_(0, group.unseen, 0).view(rows, -1, kv_heads, dim).transpose(1, 2)
        for blocks in gather_blocks(cache, group.blocks, q.dtype)
    )
    query = q.index_select(0, group.rows).view(rows, kv_heads, heads // kv_heads, dim)
    attended = functional.scaled_dot_product_attention(query, keys, values, attn_mask=group.mask, scale=scale)
    out.index_copy_(0, group.rows, attended.reshape(rows, heads, dim))


def _prefill(q: Tensor, cache: LayerCache, span: _PrefillSpan, scale: float, out: Tensor) -> None:
    queries = slice(span.start, span.start + span.count)
    group = q.shape[1] // cache.keys.shape[2]
    keys, values = (
        blocks.flatten(0, 1)[: span.length].transpose(0, 1).repeat_interleave(group, dim=0).unsqueeze(0)
        for blocks in gather_blocks(cache, span.blocks, q.dtype)
    )
    attended = functional.scaled_dot_product_attention(
        q[queries].transpose(0, 1).unsqueeze(0),
        keys,
        values,
        attn_mask=span.mask,
        is_causal=span.mask is None,
        scale=scale,
    )
    out[queries] = attended.squeeze(0).transpose(0, 1)


def gather_blocks(cache: LayerCache, blocks: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Keys and values of blocks [n], each a new tensor [n, block_size, kv_heads, head_dim] of type `dtype`."""
    keys, values = cache.keys.index_select(0, blocks), cache.values.index_select(0, blocks)
    if cache.key_scales is None or cache.value_scales is None:
        return keys, values
    key_scales, value_scales = (scales.index_select(0, blocks) for scales in (cache.key_scales, cache.value_scales))
    return (keys.float() * key_scales[..., None]).to(dtype), (values.float() * value_scales[..., None]).to(dtype)


@lru_cache(maxsize=1)  # every layer of a step asks for the same batch; older ones would keep their tensors
def _decode_groups(batch: AttentionBatch, block_size: int) -> tuple[_DecodeGroup, ...]:
    lengths = batch.kv_lens[: batch.num_decode]
    return tuple(_decode_group(batch, rows, block_size) for rows in _similar(lengths))


def _similar(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Rows in groups of similar length, longest first."""
    group: list[int] = []
    padding = 0
    for row in sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True):
        padding += lengths[group[0]] - lengths[row] if group else 0
        if group and (len(group) == _GROUP_ROWS or padding > _GROUP_PADDING * lengths[group[0]] * len(group)):
            yield group
            group, padding = [], 0
        group.append(row)
    if group:
        yield group


def _decode_group(batch: AttentionBatch, rows: list[int], block_size: int) -> _DecodeGroup:
    device = batch.block_tables.device
    index = torch.tensor(rows, dtype=torch.int64).to(device, non_blocking=True)
    width = -(-batch.kv_lens[rows[0]] // block_size)
    lengths = torch.tensor([batch.kv_lens[row] for row in rows])
    seen = torch.arange(width * block_size) < lengths[:, None]
    return _DecodeGroup(
        rows=index,
        blocks=batch.block_tables.index_select(0, batch.rows.index_select(0, index))[:, :width].flatten(),
        mask=seen[:, None, None].to(device, non_blocking=True),
        unseen=(~seen).flatten().nonzero().flatten().to(device, non_blocking=True),
    )


@lru_cache(maxsize=1)
def _prefills(batch: AttentionBatch, block_size: int) -> tuple[_PrefillSpan, ...]:
    starts = tuple(accumulate(batch.query_lens, initial=0))
    return tuple(
        _prefill_span(batch, index, starts[index], block_size)
        for index in range(batch.num_decode, len(batch.query_lens))
    )


def _prefill_span(batch: AttentionBatch, index: int, start: int, block_size: int) -> _PrefillSpan:
    count, length = batch.query_lens[index], batch.kv_lens[index]
    blocks = batch.block_tables.index_select(0, batch.rows[index : index + 1])[0, : -(-length // block_size)]
    mask = None
    if count < length:
        mask = torch.ones(count, length, dtype=torch.bool, device=blocks.device).tril(length - count)
    return _PrefillSpan(start, count, length, blocks, mask)
