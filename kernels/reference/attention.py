"""Attention over a paged KV cache: the plain-torch reference.

It also serves requests on a CPU. It never computes with slots that no sequence wrote, so that stale blocks, even with
NaN, cannot affect a result.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor
from torch.nn import functional

from thothy_ai.kernels.paged import PLAIN, AttentionBatch, AttentionParams, AttentionShape, LayerCache, PlannedAttention

# Decode rows of similar length share one call. More rows save calls, but padding to the longest costs reads.
_GROUP_ROWS = 8
_GROUP_PADDING = 0.1


class PagedAttention(PlannedAttention):
    """Plain torch. It gains nothing from shared prefixes, so its groups have one row."""

    group_rows = 1

    def __init__(self, shape: AttentionShape) -> None:
        del shape  # the Triton class allocates scratch memory for it
        self._division: dict[tuple[int, AttentionParams], _Division] = {}  # of the planned batch, by table

    def plan(self, batch: AttentionBatch) -> None:
        """Attend over this batch from now on."""
        super().plan(batch)
        self._division.clear()

    def __call__(
        self,
        q: Tensor,
        cache: LayerCache,
        params: AttentionParams = PLAIN,
        out: Tensor | None = None,
        sinks: Tensor | None = None,
    ) -> Tensor:
        """q [T, H, D] -> [T, H, D]; rows beyond the batch's tokens are zeros."""
        key = cache.table, params
        if key not in self._division:
            self._division[key] = _divide(self._batch, cache, params)
        attended = _attend(q, cache, self._division[key], params, sinks)
        return attended if out is None else out.copy_(attended)


def paged_attention(
    q: Tensor, cache: LayerCache, batch: AttentionBatch, params: AttentionParams = PLAIN, sinks: Tensor | None = None
) -> Tensor:
    """Causal attention of q [T, H, D] -> [T, H, D].

    The query at offset i of a sequence with n queries and context L sees keys [0, L - n + i], or under a window the
    last ones of these. This step's keys and values are in the cache already. T may exceed the batch's tokens: padded
    rows come back as zeros. `sinks` [H] are those of `Attention`.
    """
    return _attend(q, cache, _divide(batch, cache, params), params, sinks)


@dataclass(frozen=True, eq=False)
class _DecodeGroup:
    """R decode rows of similar length, padded to L slots of whole blocks."""

    rows: Tensor  # [R] into q
    blocks: Tensor  # [R * L / block_size]
    mask: Tensor  # [R, 1, 1, L] bool, True where a row sees a slot
    unseen: Tensor  # indices into the flat [R * L] slots that lie past a row's context, or before its window


@dataclass(frozen=True, eq=False)
class _PrefillSpan:
    """One sequence's queries [start, start + count), and its context of `length` tokens in `blocks`."""

    start: int
    count: int
    length: int
    blocks: Tensor
    mask: Tensor | None  # [count, length] bool; None when the whole context is queried, without a window


@dataclass(frozen=True, eq=False)
class _Division:
    """How a batch is computed, under one window."""

    decodes: tuple[_DecodeGroup, ...]
    prefills: tuple[_PrefillSpan, ...]


def _divide(batch: AttentionBatch, cache: LayerCache, params: AttentionParams) -> _Division:
    tables, block_size = batch.block_tables[cache.table], cache.keys.shape[1]
    lengths, starts = batch.kv_lens[: batch.num_decode], tuple(accumulate(batch.query_lens, initial=0))
    groups = tuple(_decode_group(batch, tables, rows, block_size, params) for rows in _similar(lengths))
    spans = list[_PrefillSpan]()
    for index in range(batch.num_decode, len(batch.query_lens)):
        count, length = batch.query_lens[index], batch.kv_lens[index]
        # Blocks that lie before the first query's window are left out.
        first = max(0, params.first_seen(length - count)) // block_size * block_size
        table = tables.index_select(0, batch.rows[index : index + 1])[0]
        blocks, mask = table[first // block_size : -(-length // block_size)], None
        if count < length - first or params.first_seen(length - 1) > first:
            query = torch.arange(length - count, length, device=blocks.device)[:, None]
            token = torch.arange(first, length, device=blocks.device)
            mask = (token <= query) & (token >= params.first_seen(query))
        spans.append(_PrefillSpan(starts[index], count, length - first, blocks, mask))
    return _Division(groups, tuple(spans))


def _attend(q: Tensor, cache: LayerCache, division: _Division, params: AttentionParams, sinks: Tensor | None) -> Tensor:
    (heads, dim), kv_heads, size = q.shape[1:], cache.keys.shape[2], cache.heads.value_size
    out = q.new_zeros(len(q), heads, size)
    for group in division.decodes:
        # The query heads of a KV head form the query axis, so that K and V are read once for all of them.
        rows = len(group.rows)
        keys, values = (
            blocks.flatten(0, 1).index_fill_(0, group.unseen, 0).unflatten(0, (rows, -1)).transpose(1, 2)
            for blocks in gather_blocks(cache, group.blocks, q.dtype)
        )
        query = q.index_select(0, group.rows).view(rows, kv_heads, heads // kv_heads, dim)
        of_heads = None if sinks is None else sinks.view(kv_heads, -1, 1)
        attended = _softmax_attention(query, keys, values, group.mask, params, of_heads)
        out.index_copy_(0, group.rows, attended.reshape(rows, heads, size))
    for span in division.prefills:
        queries = slice(span.start, span.start + span.count)
        keys, values = (
            blocks.flatten(0, 1)[: span.length].transpose(0, 1).repeat_interleave(heads // kv_heads, dim=0).unsqueeze(0)
            for blocks in gather_blocks(cache, span.blocks, q.dtype)
        )
        query = q[queries].transpose(0, 1).unsqueeze(0)
        of_heads = None if sinks is None else sinks.view(-1, 1, 1)
        attended = _softmax_attention(query, keys, values, span.mask, params, of_heads)
        out[queries] = attended.squeeze(0).transpose(0, 1)
    return out


def _softmax_attention(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    mask: Tensor | None,
    params: AttentionParams,
    sinks: Tensor | None,
) -> Tensor:
    """query [..., Q, D], keys [..., L, D], values [..., L, V], mask [..., Q, L] bool; None is causal, and Q is L.

    `sinks` [..., Q or 1, 1] or None: one more score for each query, with a value of zeros.
    """
    scale = params.scale_of(query.shape[-1])
    if params.soft_cap is None and sinks is None:
        return functional.scaled_dot_product_attention(
            query, keys, values, attn_mask=mask, is_causal=mask is None, scale=scale
        )
    scores = query.float() @ keys.float().transpose(-1, -2) * scale
    if params.soft_cap is not None:
        scores = torch.tanh(scores / params.soft_cap) * params.soft_cap
    if mask is None:
        mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
    scores = scores.masked_fill(~mask, -torch.inf)
    if sinks is not None:
        scores = torch.cat((scores, sinks.float().expand(*scores.shape[:-1], 1)), -1)
    return (scores.softmax(-1)[..., : keys.shape[-2]] @ values.float()).to(query.dtype)


def gather_blocks(cache: LayerCache, blocks: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Keys and values of blocks [n], each a new tensor [n, block_size, kv_heads, head_dim] of type `dtype`."""
    keys, values = cache.keys.index_select(0, blocks), cache.values.index_select(0, blocks)
    if cache.key_scales is None or cache.value_scales is None:
        return keys, values
    key_scales, value_scales = (scales.index_select(0, blocks) for scales in (cache.key_scales, cache.value_scales))
    return (keys.float() * key_scales[..., None]).to(dtype), (values.float() * value_scales[..., None]).to(dtype)


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


def _decode_group(
    batch: AttentionBatch, tables: Tensor, rows: list[int], block_size: int, params: AttentionParams
) -> _DecodeGroup:
    """Blocks that lie before every row's window are left out."""
    device = tables.device
    index = torch.tensor(rows, dtype=torch.int64).to(device, non_blocking=True)
    shortest, longest = batch.kv_lens[rows[-1]], batch.kv_lens[rows[0]]
    first, end = max(0, params.first_seen(shortest - 1)) // block_size, -(-longest // block_size)
    lengths = torch.tensor([batch.kv_lens[row] for row in rows])[:, None]
    token = torch.arange(first * block_size, end * block_size)
    seen = (token < lengths) & (token >= params.first_seen(lengths - 1))
    return _DecodeGroup(
        rows=index,
        blocks=tables.index_select(0, batch.rows.index_select(0, index))[:, first:end].flatten(),
        mask=seen[:, None, None].to(device, non_blocking=True),
        unseen=(~seen).flatten().nonzero().flatten().to(device, non_blocking=True),
    )
