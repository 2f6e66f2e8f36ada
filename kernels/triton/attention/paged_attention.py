"""Attention over a paged KV cache in Triton: one launch for the sequences that decode, one for those that prefill."""

from __future__ import annotations

import torch
from torch import Tensor

from thothy_ai.kernels.paged import (
    PLAIN,
    AttentionBatch,
    AttentionParams,
    AttentionShape,
    KVHeads,
    LayerCache,
    PlannedAttention,
)
from thothy_ai.kernels.triton.attention.decode_attention import DecodeAttention
from thothy_ai.kernels.triton.attention.prefill_attention import PrefillAttention


class PagedAttention(PlannedAttention):
    """The `Attention` of kernels/paged.py on a GPU. A step that only decodes can be captured in a CUDA graph."""

    def __init__(self, shape: AttentionShape) -> None:
        shapes = shape.by_heads()
        self._decode = {heads: DecodeAttention(each) for heads, each in shapes.items()}
        self._prefill = {heads: PrefillAttention(each) for heads, each in shapes.items()}
        self.group_rows = min(decode.group_rows for decode in self._decode.values())

    def plan(self, batch: AttentionBatch) -> None:
        """Divide the step's work; once per step, before the first layer."""
        super().plan(batch)
        for decode, prefill in zip(self._decode.values(), self._prefill.values(), strict=True):
            decode.plan(batch)
            prefill.plan(batch)

    def __call__(
        self,
        q: Tensor,
        cache: LayerCache,
        params: AttentionParams = PLAIN,
        out: Tensor | None = None,
        sinks: Tensor | None = None,
    ) -> Tensor:
        """q [T, H, D] -> [T, H, D]; rows beyond the batch's tokens are left as they are."""
        out = torch.empty_like(q) if out is None else out
        heads = KVHeads(*cache.keys.shape[2:])
        self._decode[heads](q, cache, self._batch, out, params, sinks)
        self._prefill[heads](q, cache, self._batch, out, params, sinks)
        return out
