"""Attention over a paged KV cache in Triton: one launch for the sequences that decode, one for those that prefill."""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from thothy_ai.kernels.paged import PLAIN, AttentionBatch, AttentionParams, AttentionShape, LayerCache, PlannedAttention
from thothy_ai.kernels.triton.attention.decode_attention import DecodeAttention
from thothy_ai.kernels.triton.attention.prefill_attention import PrefillAttention

_MAX_LATENT_HEADS = 32  # of a program: their results, each as large as a latent, are in its registers


class PagedAttention(PlannedAttention):
    """The `Attention` of kernels/paged.py on a GPU. A step that only decodes can be captured in a CUDA graph."""

    def __init__(self, shape: AttentionShape) -> None:
        shapes = {heads: _divided(each) for heads, each in shape.by_heads().items()}
        self._shapes = shapes
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
        """q [T, H, D] -> [T, H, V]; rows beyond the batch's tokens are left as they are."""
        heads = cache.heads
        out = q.new_empty(*q.shape[:2], heads.value_size) if out is None else out
        parts = self._shapes[heads].num_kv_heads
        if parts > heads.number:
            keys, values = (each.expand(-1, -1, parts, -1) for each in cache[:2])
            cache = cache._replace(keys=keys, values=values)
        self._decode[heads](q, cache, self._batch, out, params, sinks)
        self._prefill[heads](q, cache, self._batch, out, params, sinks)
        return out


def _divided(shape: AttentionShape) -> AttentionShape:
    """With the heads that read one latent divided over programs, as if there were a few KV heads in the same place."""
    if not shape.latent:
        return shape
    heads = next(count for count in range(_MAX_LATENT_HEADS, 0, -1) if shape.num_heads % count == 0)
    return replace(shape, num_kv_heads=shape.num_heads // heads)
