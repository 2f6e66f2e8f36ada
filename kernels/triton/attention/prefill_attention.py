"""Causal attention of the sequences that prefill, over the paged cache, in Triton.

Programs of one tile lie side by side in the grid, and tiles of one sequence too: they find its pages in the L2.
Of an fp8 cache, sequences with more queries than a tile holds are unpacked first, in rounds if they are many; the
others are read as they are, once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
import triton
from torch import Tensor

from thothy_ai.kernels.fp8 import FP8
from thothy_ai.kernels.paged import PLAIN, AttentionBatch, AttentionParams, AttentionShape, LayerCache
from thothy_ai.kernels.triton.attention.online_softmax import exponent_scale
from thothy_ai.kernels.triton.attention.prefill_kernel import prefill_kernel
from thothy_ai.kernels.triton.attention.prefill_plan import (
    QueryTile,
    Span,
    UnpackTile,
    prefill_spans,
    query_tiles,
    rounds,
    unpack_tiles,
)
from thothy_ai.kernels.triton.attention.unpack_fp8 import UnpackedKV
from thothy_ai.kernels.triton.sms import SMs
from thothy_ai.kernels.triton.tiles import power_of_two

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
        """What an H200 runs fastest (benchmarks/kernels/prefill_attention.py; latents: not measured yet), as far as
        the device holds it.
        """
        if shape.dtype == torch.float32:  # has no tensor cores here
            tiling = Tiling(rows=32, keys=16 if shape.head_dim > 128 else 32, warps=8, stages=1)
        elif shape.head_dim > 256:  # whose results take all registers that a program's threads have
            tiling = Tiling(rows=64, keys=32, warps=8, stages=2)
        elif shape.head_dim > 128:
            tiling = Tiling(rows=128, keys=64, warps=8, stages=2)
        else:
            tiling = Tiling(rows=128, keys=32, warps=4, stages=3)
        if shape.device.type != "cuda":
            return tiling
        size = power_of_two(shape.value_dim, _MIN_DIM)
        if shape.latent:
            size += power_of_two(shape.rest_dim, _MIN_DIM)
        vectors = SMs.of(shape.device).shared_of_program // (size * shape.dtype.itemsize)
        return tiling.within(vectors, 1 if shape.latent else 2)

    def within(self, vectors: int, parts: int = 2) -> Tiling:
        """With so few keys that queries, and keys and values (`parts`: 1 if keys are values) of all stages are at most
        `vectors` of a head; 16 at least.
        """
        keys = self.keys
        while keys > 16 and self.rows + parts * self.stages * keys > vectors:
            keys //= 2
        return replace(self, keys=keys)


class PrefillAttention:
    """Attention of a step's sequences that come after its decode sequences."""

    def __init__(self, shape: AttentionShape, tiling: Tiling | None = None, unpacked_tokens: int | None = None) -> None:
        self._shape = shape
        tiling = tiling or Tiling.suited(shape)
        self._tiling = replace(tiling, rows=max(tiling.rows, triton.next_power_of_2(shape.heads_per_kv)))
        self._unpacked = UnpackedKV(shape, unpacked_tokens) if shape.kv_dtype == FP8 else None
        self._spans: list[Span] = []
        self._rounds: dict[AttentionParams, list[_Round]] = {}  # of this step

    def plan(self, batch: AttentionBatch) -> None:
        """Take the step's sequences; their tiles are sent when the first layer that needs them comes."""
        self._spans = prefill_spans(batch.query_lens, batch.kv_lens, batch.num_decode)
        self._rounds.clear()

    def __call__(
        self,
        q: Tensor,
        cache: LayerCache,
        batch: AttentionBatch,
        out: Tensor,
        params: AttentionParams = PLAIN,
        sinks: Tensor | None = None,
    ) -> None:
        """Fill the rows of `out` [T, H, V] that belong to sequences [num_decode:] of the planned batch; q [T, H, D].

        `sinks` [H] float32, or None. Keys and values have the same strides, and each head's dimensions lie next to each
        other, in q and out too.
        """
        if not self._spans:
            return
        if cache.keys.stride() != cache.values.stride():
            raise ValueError(f"keys {cache.keys.stride()} and values {cache.values.stride()} differ in strides")
        for each in self._rounds_within(params):
            if each.unpacks is None or self._unpacked is None:
                self._attend(q, cache, self._shape.block_size, each.tiles, batch, out, params, sinks)
            else:
                unpacked = self._unpacked.fill(cache, batch, each.unpacks)
                self._attend(q, unpacked, None, each.tiles, batch, out, params, sinks)

    def _rounds_within(self, params: AttentionParams) -> list[_Round]:
        # Without a cache to unpack, all windows have the same rounds: the kernel finds where a window begins.
        key = PLAIN if self._unpacked is None else params
        if key not in self._rounds:
            spans = [span.within(key, self._tiling.keys) for span in self._spans]
            capacity = 0 if self._unpacked is None else self._unpacked.capacity
            tile_tokens = self._tiling.rows // self._shape.heads_per_kv
            unpacked = [span for span in spans if tile_tokens < span.queries and span.read <= capacity]
            others = [span for span in spans if tile_tokens >= span.queries or span.read > capacity]
            made = [self._round(each, unpack_tiles(each), tile_tokens) for each in rounds(unpacked, capacity)]
            self._rounds[key] = [*made, self._round(others, [], tile_tokens)] if others else made
        return self._rounds[key]

    def _round(self, spans: Sequence[Span], unpacks: Sequence[UnpackTile], tile_tokens: int) -> _Round:
        device = self._shape.device
        tiles = _to_device(query_tiles(spans, tile_tokens), device)
        return _Round(tiles, _to_device(unpacks, device) if unpacks else None)

    def _attend(
        self,
        q: Tensor,
        cache: LayerCache,
        page: int | None,
        tiles: Tensor,
        batch: AttentionBatch,
        out: Tensor,
        params: AttentionParams,
        sinks: Tensor | None,
    ) -> None:
        """`tiles` over a cache in pages, or over one block of keys and values side by side."""
        shape, tiling, tables = self._shape, self._tiling, batch.block_tables[cache.table]
        key_scales, value_scales = cache.key_scales, cache.value_scales
        prefill_kernel[(len(tiles) * shape.num_kv_heads,)](
            out, q, cache.keys, cache.values, key_scales, value_scales, sinks, tables, batch.rows, tiles,
            *out.stride()[:2], *q.stride()[:2], *cache.keys.stride()[:3],
            *((0, 0, 0) if key_scales is None else key_scales.stride()),
            tables.stride(0), exponent_scale(params, shape.head_dim),
            KV_HEADS=shape.num_kv_heads, HEADS=shape.heads_per_kv, DIM=shape.value_dim,
            DIM_PAD=power_of_two(shape.value_dim, _MIN_DIM), REST=shape.rest_dim or None,
            REST_PAD=power_of_two(shape.rest_dim, _MIN_DIM), PAGE=page, ROWS=tiling.rows, KEYS=tiling.keys,
            WINDOW=params.window, CHUNKED=params.chunked, SOFT_CAP=params.soft_cap,
            num_warps=tiling.warps, num_stages=tiling.stages,
        )  # fmt: skip


@dataclass(frozen=True, eq=False)
class _Round:
    """Tiles of queries, and what is unpacked before them; None: they read the cache itself."""

    tiles: Tensor
    unpacks: Tensor | None


def _to_device(tiles: Sequence[QueryTile] | Sequence[UnpackTile], device: torch.device) -> Tensor:
    """Fresh pinned memory each time: torch hands it out again only after the copy is done."""
    staged = torch.tensor(tiles, dtype=torch.int32, pin_memory=device.type == "cuda")
    return staged.to(device, non_blocking=True)
