"""Attention over a paged KV cache in Triton."""

from thothy_ai.kernels.triton.attention.paged_attention import PagedAttention

__all__ = ["PagedAttention"]
