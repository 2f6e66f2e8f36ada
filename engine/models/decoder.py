"""The decoder that all families share: weights in the order they are used, and the pass over them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from thothy_ai.engine.models.config import ModelConfig
from thothy_ai.engine.models.kv_cache import KVCache
from thothy_ai.engine.models.linear import Activations, Linear
from thothy_ai.kernels.operations import Operations
from thothy_ai.kernels.paged import Attention, AttentionBatch, LayerCache
from thothy_ai.kernels.rotary import QKNorm, Rotary
from thothy_ai.kernels.step import StepTokens


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
class LinearInputs:
    """The operations that make what linear layers multiply: of the model's type, or quantized in the same pass."""

    add_rms_norm: Callable[[Tensor, Tensor, Tensor, float], Activations]
    silu_mul: Callable[[Tensor], Activations]
    attended: Callable[[Tensor], Activations]

    @classmethod
    def plain(cls, operations: Operations) -> LinearInputs:
        """For weights of the model's type."""
        return cls(operations.add_rms_norm, operations.silu_mul, lambda attended: attended)

    @classmethod
    def fp8(cls, operations: Operations) -> LinearInputs:
        """For fp8 weights."""
        return cls(operations.add_rms_norm_fp8, operations.silu_mul_fp8, operations.quantize_fp8)


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
    operations: Operations
    inputs: LinearInputs

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.embedding.device

    @property
    def dtype(self) -> torch.dtype:
        """The type of activations, and of weights and KV unless they are quantized."""
        return self.embedding.dtype

    @torch.inference_mode()
    def forward(
        self,
        tokens: StepTokens,
        batch: AttentionBatch,
        cache: KVCache,
        attention: Attention,
        wanted: Tensor | None = None,
    ) -> Tensor:
        """Final hidden states [R, hidden], normalized, of the tokens `wanted` [R] int64 among a step's T, or of all.

        The KV of all T tokens is written to the cache. Of a prompt only the last token is wanted: for the others the
        last layer leaves out its output projection and its MLP, which is nearly all of it.
        """
        attention.plan(batch)
        residual = functional.embedding(tokens.ids, self.embedding)
        update = torch.zeros_like(residual)
        inputs, eps = self.inputs, self.config.norm_eps
        for layer, layer_cache in zip(self.layers, cache.layers, strict=True):
            hidden = inputs.add_rms_norm(update, residual, layer.attention_norm, eps)
            q = self._project(layer, hidden, tokens, layer_cache)
            attended = attention(q, layer_cache).flatten(1)
            if wanted is not None and layer is self.layers[-1]:
                if not len(wanted):
                    return residual[:0]
                attended, residual = attended.index_select(0, wanted), residual.index_select(0, wanted)
            update = layer.output(inputs.attended(attended))
            hidden = inputs.add_rms_norm(update, residual, layer.mlp_norm, eps)
            update = layer.down(inputs.silu_mul(layer.gate_up(hidden)))
        return self.operations.add_rms_norm(update, residual, self.norm, eps)

    @torch.inference_mode()
    def logits(self, hidden: Tensor) -> Tensor:
        """Logits [R, vocab] of hidden states [R, hidden], in the model's type."""
        return self.head(hidden)

    def _project(self, layer: Layer, hidden: Activations, tokens: StepTokens, cache: LayerCache) -> Tensor:
        """Queries [T, heads, head_dim], rotated; keys and values go to the cache."""
        config = self.config
        qkv = layer.qkv(hidden).view(len(tokens.ids), -1, config.head_dim)
        return self.operations.rotate_and_cache(
            qkv,
            layer.qk_norm,
            config.norm_eps,
            self.rotary,
            tokens.positions,
            tokens.slots,
            cache,
            config.num_heads,
        )
