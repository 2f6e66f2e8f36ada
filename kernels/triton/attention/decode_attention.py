"""Attention of the decode sequences over the paged cache, in Triton: split over tokens, with shared prefixes read once.

One launch computes the slots of the plan (Flash-Decoding: Dao et al., 2023). Neighbouring programs have neighbouring KV
heads of the same tokens, so they read neighbouring memory. Another launch merges what lies in several slots, or in a
group's prefix and a sequence's own part.
"""

from __future__ import annotations

import triton
from torch import Tensor

from thothy_ai.kernels.paged import PLAIN, AttentionBatch, AttentionParams, AttentionShape, LayerCache
from thothy_ai.kernels.triton.attention.decode_kernel import decode_kernel
from thothy_ai.kernels.triton.attention.decode_merge import Partials, merge
from thothy_ai.kernels.triton.attention.decode_plan import DecodePlan
from thothy_ai.kernels.triton.attention.decode_tuning import DecodeTuning, padded_dim, padded_rest
from thothy_ai.kernels.triton.attention.online_softmax import exponent_scale


class DecodeAttention:
    """Attention of a step's first `num_decode` sequences, each of one token."""

    def __init__(self, shape: AttentionShape, tuning: DecodeTuning | None = None) -> None:
        tuning = tuning or DecodeTuning.suited(shape)
        self.group_rows = tuning.group_rows
        self._shape = shape
        self._tuning = tuning
        self._num_slots = max(1, tuning.programs // shape.num_kv_heads)
        self._partials = Partials.allocate(shape, self._num_slots, tuning.group_rows)
        self._plans: dict[tuple[int | None, bool], DecodePlan] = {}  # by window, and whether that is a chunk
        self._filled: set[tuple[int | None, bool]] = set()  # for this step

    def plan(self, batch: AttentionBatch) -> None:
        """A new step: its decode sequences are divided over the grid when the first layer of each window comes."""
        del batch
        self._filled.clear()

    def __call__(
        self,
        q: Tensor,
        cache: LayerCache,
        batch: AttentionBatch,
        out: Tensor,
        params: AttentionParams = PLAIN,
        sinks: Tensor | None = None,
    ) -> None:
        """Fill out[:num_decode] of [T, H, V] for q [T, H, D] over the planned batch; `sinks` [H] float32 or None.

        Keys and values have the same strides, and each head's dimensions lie next to each other, in q and out too.
        """
        if not batch.num_decode:
            return
        if cache.keys.stride() != cache.values.stride():
            raise ValueError(f"keys {cache.keys.stride()} and values {cache.values.stride()} differ in strides")
        shape, tuning, window = self._shape, self._tuning, (params.window, params.chunked)
        if window not in self._plans:
            self._plans[window] = DecodePlan.allocate(
                shape.max_rows, self._num_slots, tuning.tile, shape.device,
                group_rows=tuning.group_rows, window=params.window, chunked=params.chunked,
            )  # fmt: skip
        plan, tables = self._plans[window], batch.block_tables[cache.table]
        if window not in self._filled:  # one launch for the first layer that has this window
            plan.fill(batch)
            self._filled.add(window)
        partials, key_scales, value_scales = self._partials, cache.key_scales, cache.value_scales
        decode_kernel[(plan.num_slots * shape.num_kv_heads,)](
            out, partials.outputs, partials.lse, q, cache.keys, cache.values, key_scales, value_scales, sinks,
            tables, batch.rows, batch.context_lens, batch.shared_lens, batch.group_sizes,
            plan.totals, plan.own_starts, plan.group_starts, plan.group_members,
            plan.slot_groups, plan.slot_members, plan.group_skipped,
            *out.stride()[:2], *q.stride()[:2], *cache.keys.stride()[:3],
            *((0, 0, 0) if key_scales is None else key_scales.stride()),
            tables.stride(0), partials.group_base, exponent_scale(params, shape.head_dim),
            KV_HEADS=shape.num_kv_heads, HEADS=shape.heads_per_kv, HEADS_PAD=triton.next_power_of_2(shape.heads_per_kv),
            DIM=shape.value_dim, DIM_PAD=padded_dim(shape), REST=shape.rest_dim or None, REST_PAD=padded_rest(shape),
            PAGE=shape.block_size, TILE=tuning.tile, AHEAD=tuning.ahead, GROUP_ROWS=tuning.group_rows,
            WINDOW=params.window, CHUNKED=params.chunked, SOFT_CAP=params.soft_cap,
            num_warps=tuning.warps, maxnreg=tuning.registers,
        )  # fmt: skip
        merge(partials, plan, batch, out, sinks)
