"""The decoder that all families share: weights in the order they are used, and the pass over them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from thothy_ai.engine.kv_cache import KVCache
from thothy_ai.engine.linear import Linear
from thothy_ai.engine.model_config import ModelConfig
from thothy_ai.kernels.activation import silu_mul
from thothy_ai.kernels.attention import AttentionBatch, paged_attention
from thothy_ai.kernels.norm import add_rms_norm, rms_norm
from thothy_ai.kernels.rope import Rotary, apply_rope, write_kv


@dataclass(frozen=True, slots=True)
class QKNorm:
    """Weights [head_dim] of the norms over each query and key head."""

    query: Tensor
    key: Tensor


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer's weights. `qkv` and `gate_up` are merged: one GEMM each."""

    attention_norm: Tensor
    qkv: Linear
    qk_norm: QKNorm | None
    output: Linear
    mlp_norm: Tensor
    gate_up: Linear
    down: Linear


@dataclass(frozen=True, slots=True)
class Model:
    """A decoder on its device. `embedding` [vocab, hidden]; `rotary` has every position of the context."""

    config: ModelConfig
    embedding: Tensor
    layers: tuple[Layer, ...]
    norm: Tensor
    head: Linear
    rotary: Rotary
    num_bytes: int  # of all weights

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.embedding.device

    @property
    def dtype(self) -> torch.dtype:
        """The type of weights, activations and KV."""
        return self.embedding.dtype

    @torch.inference_mode()
    def forward(
        self, token_ids: Tensor, positions: Tensor, slots: Tensor, attention: AttentionBatch, kv: KVCache
    ) -> Tensor:
        """Final hidden states [T, hidden], normalized, of tokens [T] at positions [T]; their KV goes to slots [T]."""
        rotary = self.rotary.at(positions)
        residual = functional.embedding(token_ids, self.embedding)
        update = torch.zeros_like(residual)
        eps = self.config.norm_eps
        for layer, keys, values in zip(self.layers, kv.keys, kv.values, strict=True):
            hidden, residual = add_rms_norm(update, residual, layer.attention_norm, eps)
            update = self._attend(layer, hidden, rotary, slots, attention, keys, values)
            hidden, residual = add_rms_norm(update, residual, layer.mlp_norm, eps)
            update = layer.down(silu_mul(layer.gate_up(hidden)))
        return add_rms_norm(update, residual, self.norm, eps)[0]

    @torch.inference_mode()
    def logits(self, hidden: Tensor) -> Tensor:
        """Float32 logits [R, vocab] of hidden states [R, hidden]."""
        return self.head(hidden).to(torch.float32)

    def _attend(
        self,
        layer: Layer,
        hidden: Tensor,
        rotary: Rotary,
        slots: Tensor,
        attention: AttentionBatch,
        keys: Tensor,
        values: Tensor,
    ) -> Tensor:
        config = self.config
        heads, kv_heads = config.num_heads, config.num_kv_heads
        qkv = layer.qkv(hidden).view(len(hidden), heads + 2 * kv_heads, config.head_dim)
        q, k, v = qkv.split((heads, kv_heads, kv_heads), dim=1)
        if layer.qk_norm is not None:
            q = rms_norm(q, layer.qk_norm.query, config.norm_eps)
            k = rms_norm(k, layer.qk_norm.key, config.norm_eps)
        write_kv(apply_rope(k, rotary), v, keys, values, slots)
        q = apply_rope(q, rotary)
        attended = paged_attention(q, keys, values, attention, config.head_dim**-0.5)
        return layer.output(attended.flatten(1))
