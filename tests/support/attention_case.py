"""Attention problems over caches full of NaN between what was written, and the textbook's answer in float64."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from thothy_ai.kernels.paged import PLAIN, AttentionBatch, AttentionParams, AttentionShape, LayerCache
from thothy_ai.kernels.reference.rope import write_kv

if TYPE_CHECKING:
    from thothy_ai.kernels.triton.attention.decode_attention import DecodeAttention
    from thothy_ai.kernels.triton.attention.prefill_attention import PrefillAttention

FP8 = torch.float8_e4m3fn
TOLERANCES = {torch.float32: (3e-6, 1e-5), torch.float16: (3e-3, 5e-3), torch.bfloat16: (1.5e-2, 1e-2)}
_SPARE_ROWS = 2


class Group(NamedTuple):
    """Sequences [first, first + size) whose first `blocks` blocks are the same."""

    first: int
    size: int
    blocks: int


@dataclass(frozen=True)
class Case:
    q: Tensor
    cache: LayerCache
    batch: AttentionBatch

    def on(self, device: torch.device) -> Case:
        """On another device."""
        tensors = {name: value.to(device) for name, value in _tensors(self.batch).items()}
        cache = _changed(self.cache, lambda part: part.to(device))
        tables = tuple(table.to(device) for table in self.batch.block_tables)
        return Case(self.q.to(device), cache, replace(self.batch, block_tables=tables, **tensors))

    def of(self, dtype: torch.dtype) -> Case:
        """With floats of another type."""
        return replace(self, q=self.q.to(dtype), cache=_changed(self.cache, lambda part: part.to(dtype)))

    def with_latents(self, size: int) -> Case:
        """With the first numbers of keys as values."""
        return replace(self, cache=LayerCache(self.cache.keys, self.cache.keys[..., :size]))

    def with_fp8_cache(self) -> Case:
        """With the cache in fp8, each token and head with its own scales; those of unwritten slots are NaN."""
        keys, key_scales = _quantize(self.cache.keys)
        values, value_scales = _quantize(self.cache.values)
        return replace(self, cache=LayerCache(keys, values, key_scales, value_scales))

    def with_broken_tokens(self, positions: Mapping[int, int]) -> Case:
        """With the token at a position of some sequences as it is cached when its keys and values came out as NaN."""
        size, kv_heads, dim = self.cache.keys.shape[1:]
        tables = self.batch.block_tables[0][self.batch.rows]
        slots = torch.tensor([int(tables[member, at // size]) * size + at % size for member, at in positions.items()])
        cache = LayerCache(*(part if part is None else part.clone() for part in self.cache[:4]))
        broken = torch.full((len(slots), kv_heads, dim), torch.nan, dtype=self.q.dtype)
        write_kv(broken, broken, cache, slots)
        return replace(self, cache=cache)

    def with_freed_blocks(self, window: int, *, chunked: bool = False) -> Case:
        """With what another sequence may leave in the blocks that lie before the windows of all that hold them."""
        size = self.cache.keys.shape[1]
        needed = {
            block
            for row, queries, context in zip(self.batch.rows, self.batch.query_lens, self.batch.kv_lens, strict=True)
            for block in self.batch.block_tables[0][
                row, _begin(context - queries, window, chunked=chunked) // size :
            ].tolist()
        }
        freed = [block for block in range(len(self.cache.keys)) if block not in needed]
        cache = LayerCache(*(part if part is None else part.clone() for part in self.cache[:4]))
        (cache.keys if cache.key_scales is None else cache.key_scales)[freed] = torch.nan
        (cache.values if cache.value_scales is None else cache.value_scales)[freed] = 300.0
        return replace(self, cache=cache)

    def side_by_side(self, part: int, stride: int, others: float) -> Case:
        """With the cache as one of `stride` parts of blocks, as layers of groups share them."""

        def beside(blocks: Tensor) -> Tensor:
            size = blocks.shape[1]
            wide = blocks.new_full((len(blocks), stride * size, *blocks.shape[2:]), others)
            own = wide[:, part * size : (part + 1) * size]
            own.copy_(blocks)
            return own

        return replace(self, cache=LayerCache(beside(self.cache.keys), beside(self.cache.values)))

    def heads_first(self) -> Case:
        """With the cache in the memory order [num_blocks, kv_heads, block_size, head_dim], under the same shape."""
        parts = (None if part is None else part.transpose(1, 2).contiguous().transpose(1, 2) for part in self.cache[:4])
        return replace(self, cache=LayerCache(*parts))


def make_case(
    lengths: list[tuple[int, int]],
    *,
    heads: int,
    kv_heads: int,
    dim: int,
    block_size: int,
    seed: int,
    spare: int = 0,
    groups: Sequence[Group] = (),
) -> Case:
    """Sequences of (queries, context) tokens over shuffled blocks; `spare` more rows of q than tokens.

    Rows of the block table are shuffled among spare ones, and all its stale entries name a block full of NaN.
    """
    generator = torch.Generator().manual_seed(seed)
    counts = [-(-context // block_size) for _, context in lengths]
    num_blocks = sum(counts) + 4
    poison, *free = (1 + torch.randperm(num_blocks - 1, generator=generator)).tolist()
    owned = [[free.pop() for _ in range(count)] for count in counts]
    for group in groups:
        for member in range(group.first + 1, group.first + group.size):
            owned[member][: group.blocks] = owned[group.first][: group.blocks]
    rows = torch.randperm(len(lengths) + _SPARE_ROWS, generator=generator)[: len(lengths)].to(torch.int32)
    tables = torch.full((len(lengths) + _SPARE_ROWS, max(counts, default=0) + 1), poison, dtype=torch.int32)
    shape = (num_blocks, block_size, kv_heads, dim)
    keys, values = torch.full(shape, torch.nan), torch.full(shape, torch.nan)
    for row, blocks, (_, context) in zip(rows.tolist(), owned, lengths, strict=True):
        tables[row, : len(blocks)] = torch.tensor(blocks, dtype=torch.int32)
        slots = (torch.tensor(blocks)[:, None] * block_size + torch.arange(block_size)).flatten()[:context]
        for cache in (keys, values):
            cache.view(-1, kv_heads, dim)[slots] = torch.randn(context, kv_heads, dim, generator=generator)
    queries = [query for query, _ in lengths]
    shared_lens, group_sizes = _group_tensors(len(lengths), groups, block_size)
    batch = AttentionBatch(
        block_tables=(tables,),
        rows=rows,
        context_lens=torch.tensor([context for _, context in lengths], dtype=torch.int32),
        query_starts=torch.tensor([0, *queries]).cumsum(0).to(torch.int32),
        shared_lens=shared_lens,
        group_sizes=group_sizes,
        num_decode=next((i for i, query in enumerate(queries) if query > 1), len(queries)),
        query_lens=tuple(queries),
        kv_lens=tuple(context for _, context in lengths),
    )
    q = torch.randn(sum(queries) + spare, heads, dim, generator=generator)
    return Case(q, LayerCache(keys, values), batch)


def textbook(case: Case, params: AttentionParams = PLAIN, sinks: Tensor | None = None) -> Tensor:
    """One query at a time, in float64; rows that are no token's stay zero."""
    scale = params.scale_of(case.q.shape[-1])
    keys, values = _dense(case.cache.keys, case.cache.key_scales), _dense(case.cache.values, case.cache.value_scales)
    size, kv_heads = keys.shape[1:3]
    group = case.q.shape[1] // kv_heads
    token, out = 0, torch.zeros(*case.q.shape[:2], values.shape[3], dtype=torch.float64)
    for member, (queries, context) in enumerate(zip(case.batch.query_lens, case.batch.kv_lens, strict=True)):
        table = case.batch.block_tables[0][case.batch.rows[member]].long()
        places = torch.arange(context)
        near, far = (cache[table[places // size], places % size] for cache in (keys, values))  # [context, kv_heads, D]
        for offset in range(queries):
            seen = context - queries + offset + 1
            query = case.q[token].double().view(kv_heads, group, -1)
            first = 0 if params.window is None else _begin(seen - 1, params.window, chunked=params.chunked)
            scores = torch.einsum("kgd,lkd->kgl", query, near[first:seen]) * scale
            if params.soft_cap is not None:
                scores = (scores / params.soft_cap).tanh() * params.soft_cap
            if params.slopes is not None:
                slopes = torch.tensor(params.slopes).double().view(kv_heads, group, 1)
                scores = scores + slopes * (torch.arange(first, seen) - (seen - 1))
            if sinks is not None:
                scores = torch.cat((scores, sinks.double().view(kv_heads, group, 1)), -1)
            shares = scores.softmax(-1)[..., : seen - first]
            out[token] = torch.einsum("kgl,lkd->kgd", shares, far[first:seen]).flatten(0, 1)
            token += 1
    return out


def _begin(query: int, window: int, *, chunked: bool) -> int:
    """The first token of those that a query sees."""
    seen = (key // window == query // window if chunked else query - key < window for key in range(query + 1))
    return next(key for key, sees in enumerate(seen) if sees)


def _group_tensors(sequences: int, groups: Sequence[Group], block_size: int) -> tuple[Tensor, Tensor]:
    shared_lens = torch.zeros(sequences, dtype=torch.int32)
    group_sizes = torch.ones(sequences, dtype=torch.int32)
    for group in groups:
        members = slice(group.first, group.first + group.size)
        shared_lens[members] = group.blocks * block_size
        group_sizes[members] = 0
        group_sizes[group.first] = group.size
    return shared_lens, group_sizes


def _tensors(batch: AttentionBatch) -> dict[str, Tensor]:
    values = {field.name: getattr(batch, field.name) for field in fields(batch)}
    return {name: value for name, value in values.items() if isinstance(value, Tensor)}


def _changed(cache: LayerCache, change: Callable[[Tensor], Tensor]) -> LayerCache:
    """With each of its parts changed; latents stay a part of keys."""
    if size := cache.heads.latent:
        keys = change(cache.keys)
        return LayerCache(keys, keys[..., :size])
    return LayerCache(*(part if part is None else change(part) for part in cache[:4]))


def _quantize(cache: Tensor) -> tuple[Tensor, Tensor]:
    scales = cache.float().abs().amax(-1) / torch.finfo(FP8).max
    return (cache.float() / scales[..., None]).to(FP8), scales


def _dense(cache: Tensor, scales: Tensor | None) -> Tensor:
    return cache.double() if scales is None else cache.double() * scales[..., None].double()


def shape_of(case: Case) -> AttentionShape:
    _, block_size, kv_heads, dim = case.cache.keys.shape
    kv_dtype = case.cache.keys.dtype
    sizes = (64, case.q.shape[1], kv_heads, dim, block_size, 4096)
    return AttentionShape(*sizes, case.q.dtype, kv_dtype, case.q.device, latent=case.cache.heads.latent)


def over_nan(
    part: DecodeAttention | PrefillAttention, case: Case, params: AttentionParams, sinks: Tensor | None
) -> Tensor:
    """What decode or prefill attention makes of the case, over a result that is NaN."""
    part.plan(case.batch)
    out = case.q.new_full((*case.q.shape[:2], case.cache.heads.value_size), torch.nan)
    part(case.q, case.cache, case.batch, out, params, sinks)
    return out
