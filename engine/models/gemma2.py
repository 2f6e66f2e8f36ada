"""Gemma 2 (text): norms around each block, GeGLU, soft-capped scores and logits, a sliding window in some layers.

Norms multiply by 1 + w, computed in float32. That sum is kept in float32, whatever the model's type: it is what
transformers computes with, and rounding it to bfloat16 would lose what w has beyond 1's last bit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self

import torch
from torch import Tensor

from thothy_ai.engine.errors import UnsupportedModelError
from thothy_ai.engine.models.decoder import Decoder
from thothy_ai.engine.models.family import (
    GGUFNames,
    Windows,
    require_activation,
    require_full_rotary,
)
from thothy_ai.engine.models.layers.attention import Attention
from thothy_ai.engine.models.layers.context import LayerContext
from thothy_ai.engine.models.layers.embedding import Head, LinearHead, ScaledEmbedding, SoftCappedHead
from thothy_ai.engine.models.layers.mlp import GeGLU
from thothy_ai.engine.models.layers.norm import AddRMSNorm, FinalNorm, RMSNorm
from thothy_ai.kernels.operations import Operations
from thothy_ai.kernels.paged import AttentionParams

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

    from thothy_ai.engine.models.builder import ModelBuilder


@dataclass(frozen=True, slots=True)
class Gemma2:
    """The attention of each layer, and what logits are capped at (None: they are not)."""

    model_type: ClassVar[str] = "gemma2"
    gguf: ClassVar[GGUFNames | None] = None  # such a file does not say what scores are multiplied by

    attention: tuple[AttentionParams, ...]
    attention_bias: bool
    logit_cap: float | None

    @property
    def windows(self) -> Windows:
        """Of every other layer, usually."""
        return tuple(params.window for params in self.attention)

    @classmethod
    def read(cls, config: PreTrainedConfig) -> Self:
        """From transformers' configuration."""
        require_activation(config.hidden_activation, "gelu_pytorch_tanh")
        require_full_rotary(config)
        if config.use_bidirectional_attention:
            raise UnsupportedModelError("bidirectional attention is not implemented")
        return cls(
            attention=tuple(_attention(config, kind) for kind in config.layer_types),
            attention_bias=config.attention_bias,
            logit_cap=config.final_logit_softcapping,
        )

    def build(self, build: ModelBuilder) -> Decoder:
        """The decoder."""
        factor = torch.tensor(build.config.hidden_size**0.5).to(build.embedding.dtype)
        return Decoder(
            embedding=ScaledEmbedding(build.embedding, factor.item()),
            layers=tuple(
                self._layer(build, f"model.layers.{index}.", params.within(build.config.max_context))
                for index, params in enumerate(self.attention)
            ),
            norm=FinalNorm(_norm_weight(build, "model.norm"), build.config.norm_eps),
            head=self._head(build),
        )

    def _layer(self, build: ModelBuilder, prefix: str, params: AttentionParams) -> Gemma2Layer:
        config, eps, heads, mlp = build.config, build.config.norm_eps, prefix + "self_attn.", prefix + "mlp."
        qkv = build.qkv(heads, bias=self.attention_bias)
        output = build.attention_output(heads, bias=self.attention_bias)
        gate_up = build.gate_up(mlp)
        return Gemma2Layer(
            before_attention=AddRMSNorm(_norm_weight(build, prefix + "input_layernorm"), eps, qkv.takes_fp8),
            attention=Attention(qkv, output, build.rotary, config.num_heads, config.head_dim, eps, params=params),
            after_attention=RMSNorm(_norm_weight(build, prefix + "post_attention_layernorm"), eps),
            before_mlp=AddRMSNorm(_norm_weight(build, prefix + "pre_feedforward_layernorm"), eps, gate_up.takes_fp8),
            mlp=GeGLU(gate_up, build.down(mlp)),
            after_mlp=RMSNorm(_norm_weight(build, prefix + "post_feedforward_layernorm"), eps),
        )

    def _head(self, build: ModelBuilder) -> Head:
        linear = build.head()
        return LinearHead(linear) if self.logit_cap is None else SoftCappedHead(linear, self.logit_cap)


@dataclass(frozen=True, slots=True)
class Gemma2Layer:
    """x += norm(attention(norm(x))); x += norm(mlp(norm(x))). Each sum is left to the norm that follows it."""

    before_attention: AddRMSNorm
    attention: Attention
    after_attention: RMSNorm
    before_mlp: AddRMSNorm
    mlp: GeGLU
    after_mlp: RMSNorm

    def attend(self, update: Tensor, residual: Tensor, context: LayerContext) -> Tensor:
        """[T, hidden] -> [T, heads * head_dim]; `residual` is overwritten with the sum."""
        return self.attention(self.before_attention(update, residual, context.operations), context)

    def finish(self, attended: Tensor, residual: Tensor, operations: Operations) -> Tensor:
        """attended [R, heads * head_dim] -> the next update [R, hidden]; `residual` is overwritten with the sum."""
        update = self.after_attention(self.attention.project(attended, operations), operations)
        hidden = self.before_mlp(update, residual, operations)
        return self.after_mlp(self.mlp(hidden, operations), operations)


def _attention(config: PreTrainedConfig, kind: str) -> AttentionParams:
    """Of a layer of this kind."""
    return AttentionParams(
        scale=config.query_pre_attn_scalar**-0.5,
        window=config.sliding_window if kind == "sliding_attention" else None,
        soft_cap=config.attn_logit_softcapping,
    )


def _norm_weight(build: ModelBuilder, name: str) -> Tensor:
    """1 + w [hidden] float32."""
    return build.held(1.0 + build.tensor(f"{name}.weight", build.config.hidden_size).float())
