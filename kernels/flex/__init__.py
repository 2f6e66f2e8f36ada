"""Attention over a paged KV cache through torch's FlexAttention."""

from thothy_ai.kernels.flex.attention import FlexAttention

__all__ = ["FlexAttention"]
