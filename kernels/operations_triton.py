"""The operations between a model's matrix products, in Triton."""

from __future__ import annotations

from thothy_ai.kernels import activation_triton, norm_triton, quantize_triton, rope_triton, rows_triton
from thothy_ai.kernels.paged import Attention, AttentionShape


class TritonOperations:
    """Triton's kernels, on a GPU."""

    add_rms_norm = staticmethod(norm_triton.add_rms_norm)
    add_rms_norm_fp8 = staticmethod(norm_triton.add_rms_norm_fp8)
    silu_mul = staticmethod(activation_triton.silu_mul)
    silu_mul_fp8 = staticmethod(activation_triton.silu_mul_fp8)
    quantize_fp8 = staticmethod(quantize_triton.quantize_fp8)
    rotate_and_cache = staticmethod(rope_triton.rotate_and_cache)
    step_tokens = staticmethod(rows_triton.step_tokens)
    scatter = staticmethod(rows_triton.scatter)

    def attention(self, shape: AttentionShape) -> Attention:
        """Attention that prefills and decodes in kernels of their own."""
        from thothy_ai.kernels.attention_triton import PagedAttention  # noqa: PLC0415  the largest of all, and alone

        return PagedAttention(shape)
