"""The operations between a model's matrix products, as one object that a model is given: plain torch or Triton."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from thothy_ai.kernels import activation, norm, quantize, rope, rows
from thothy_ai.kernels.attention import ReferenceAttention
from thothy_ai.kernels.paged import Attention, AttentionShape, LayerCache
from thothy_ai.kernels.quantize import Quantized
from thothy_ai.kernels.rope import QKNorm, Rotary
from thothy_ai.kernels.rows import StepFacts, StepTokens


class Operations(Protocol):
    """All stateless; shapes and meaning are those of the functions that `ReferenceOperations` names."""

    def add_rms_norm(self, x: Tensor, residual: Tensor, weight: Tensor, eps: float, /) -> Tensor:
        """The normalized sum [T, N] of x and residual, which is overwritten with the sum."""
        ...

    def add_rms_norm_fp8(self, x: Tensor, residual: Tensor, weight: Tensor, eps: float, /) -> Quantized:
        """As `add_rms_norm`, quantized by token."""
        ...

    def silu_mul(self, gate_up: Tensor, /) -> Tensor:
        """silu(gate) * up of [T, 2 * N] -> [T, N]."""
        ...

    def silu_mul_fp8(self, gate_up: Tensor, /) -> Quantized:
        """As `silu_mul`, quantized by token."""
        ...

    def quantize_fp8(self, x: Tensor, /) -> Quantized:
        """x [T, N], quantized by token."""
        ...

    def rotate_and_cache(
        self,
        qkv: Tensor,
        norms: QKNorm | None,
        eps: float,
        rotary: Rotary,
        positions: Tensor,
        slots: Tensor,
        cache: LayerCache,
        num_heads: int,
        /,
    ) -> Tensor:
        """Queries [T, heads, head_dim] of the merged projection, normed and rotated; keys and values are cached."""
        ...

    def attention(self, shape: AttentionShape, /) -> Attention:
        """Attention for steps of at most this shape."""
        ...

    def step_tokens(
        self, token_ids: Tensor, block_tables: Tensor, facts: StepFacts, total: int, block_size: int, /
    ) -> StepTokens:
        """A step's tokens, read from device-resident rows."""
        ...

    def scatter(self, target: Tensor, index: Tensor, values: Tensor, /) -> None:
        """target.flatten()[index] = values."""
        ...


class ReferenceOperations:
    """Plain torch, on any device."""

    add_rms_norm = staticmethod(norm.add_rms_norm)
    add_rms_norm_fp8 = staticmethod(norm.add_rms_norm_fp8)
    silu_mul = staticmethod(activation.silu_mul)
    silu_mul_fp8 = staticmethod(activation.silu_mul_fp8)
    quantize_fp8 = staticmethod(quantize.quantize_fp8)
    rotate_and_cache = staticmethod(rope.rotate_and_cache)
    step_tokens = staticmethod(rows.step_tokens)
    scatter = staticmethod(rows.scatter)

    def attention(self, shape: AttentionShape) -> Attention:
        """Attention that computes with what sequences wrote, and nothing else."""
        return ReferenceAttention(shape.scale)
