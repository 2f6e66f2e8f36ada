"""Gemma 2 (text): norms around each block, GeGLU, soft-capped scores and logits, a sliding window in some layers.

Norms multiply by 1 + w, computed in float32. That sum is kept in float32, whatever the model's type: it is what
transformers computes with, and rounding it to bfloat16 would lose what w has beyond 1's last bit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

import torch
from torch import Tensor

from thothy_ai.engine.api.errors import UnsupportedModelError
from thothy_ai.engine.models.decoder import Decoder
from thothy_ai.engine.models.family import (
    GGUF_ATTENTION,
    GGUF_GATED_MLP,
    GGUF_SANDWICH_NORMS,
    GGUFNames,
    Windows,
    require_activation,
    require_full_rotary,
)
from thothy_ai.engine.models.layers.attention import Attention
from thothy_ai.engine.models.layers.blocks import SandwichNormLayer
from thothy_ai.engine.models.layers.embedding import Head, LinearHead, ScaledEmbedding, SoftCappedHead
from thothy_ai.engine.models.layers.mlp import GeGLU
from thothy_ai.engine.models.layers.norm import AddRMSNorm, FinalNorm, RMSNorm
from thothy_ai.kernels.paged import AttentionParams

if TYPE_CHECKING:
    from thothy_ai.engine.checkpoint.configuration import Configuration
    from thothy_ai.engine.models.builder import ModelBuilder


_LAYERS_OF_27B = 46


def _unsaid(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a GGUF file leaves to those who read it; llama.cpp's rule. Every other layer is without a window."""
    share = fields["hidden_size"] // fields["num_attention_heads"]
    return {"query_pre_attn_scalar": share if fields["num_hidden_layers"] == _LAYERS_OF_27B else fields["head_dim"]}


@dataclass(frozen=True, slots=True)
class Gemma2:
    """The attention of each layer, and what logits are capped at (None: they are not)."""

    model_type: ClassVar[str] = "gemma2"
    gguf: ClassVar[GGUFNames | None] = GGUFNames(
        "gemma2",
        {**GGUF_SANDWICH_NORMS, **GGUF_ATTENTION, **GGUF_GATED_MLP},
        one_plus=True,
        settings={
            "sliding_window": ".attention.sliding_window",
            "attn_logit_softcapping": ".attn_logit_softcapping",
            "final_logit_softcapping": ".final_logit_softcapping",
        },
        derived=_unsaid,
    )

    attention: tuple[AttentionParams, ...]
    attention_bias: bool
    logit_cap: float | None

    @property
    def windows(self) -> Windows:
        """Of every other layer, usually."""
        return tuple(params.window for params in self.attention)

    @classmethod
    def read(cls, config: Configuration) -> Self:
        """From a model's configuration."""
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
        factor = torch.tensor(build.shape.hidden_size**0.5).to(build.embedding.dtype)
        return Decoder(
            embedding=ScaledEmbedding(build.embedding, factor.item()),
            layers=tuple(
                self._layer(build, f"model.layers.{index}.", params.within(build.shape.max_context))
                for index, params in enumerate(self.attention)
            ),
            norm=FinalNorm(_norm_weight(build, "model.norm"), build.shape.norm_eps),
            head=self._head(build),
        )

    def _layer(self, build: ModelBuilder, prefix: str, params: AttentionParams) -> SandwichNormLayer:
        config, eps, heads, mlp = build.shape, build.shape.norm_eps, prefix + "self_attn.", prefix + "mlp."
        qkv = build.qkv(heads, bias=self.attention_bias)
        output = build.attention_output(heads, bias=self.attention_bias)
        gate_up = build.gate_up(mlp)
        return SandwichNormLayer(
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


def _attention(config: Configuration, kind: str) -> AttentionParams:
    """Of a layer of this kind."""
    return AttentionParams(
        scale=config.query_pre_attn_scalar**-0.5,
        window=config.sliding_window if kind == "sliding_attention" else None,
        soft_cap=config.attn_logit_softcapping,
    )


def _norm_weight(build: ModelBuilder, name: str) -> Tensor:
    """1 + w [hidden] float32."""
    return build.held(build.float32(f"{name}.weight", build.shape.hidden_size).add_(1.0))
