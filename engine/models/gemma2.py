"""Gemma 2 (text): norms around each block, GeGLU, soft-capped scores and logits, a sliding window in some layers.

Norms multiply by 1 + w, computed in float32. That sum is kept in float32, whatever the model's type: it is what
transformers computes with, and rounding it to bfloat16 would lose what w has beyond 1's last bit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from thothy_ai.engine.api.errors import UnsupportedModelError
from thothy_ai.engine.checkpoint.configuration import Configuration
from thothy_ai.engine.models.builder import ModelBuilder
from thothy_ai.engine.models.decoder import Decoder
from thothy_ai.engine.models.family import Windows, layer_windows, require_activation, require_full_rotary
from thothy_ai.engine.models.gguf_names import GGUF_ATTENTION, GGUF_GATED_MLP, GGUF_SANDWICH_NORMS, GGUFNames
from thothy_ai.engine.models.layers.attention import SelfAttention
from thothy_ai.engine.models.layers.blocks import SandwichNormLayer
from thothy_ai.engine.models.layers.embedding import LinearHead, SoftCappedHead
from thothy_ai.engine.models.layers.mlp import GeGLU
from thothy_ai.engine.models.layers.norm import AddRMSNorm, FinalNorm, RMSNorm
from thothy_ai.kernels.paged import AttentionParams

_LAYERS_OF_27B = 46


def query_scalar(fields: Mapping[str, Any], layers_of_27b: int) -> int:
    """`query_pre_attn_scalar` by llama.cpp's rule, since a GGUF file does not have it."""
    share: int = fields["hidden_size"] // fields["num_attention_heads"]
    return share if fields["num_hidden_layers"] == layers_of_27b else fields["head_dim"]


@dataclass(frozen=True, slots=True)
class Gemma2:
    """`attention` has each layer's parameters. `logit_cap` None: logits are not capped."""

    model_type: ClassVar[str] = "gemma2"
    gguf: ClassVar[GGUFNames | None] = GGUFNames(
        "gemma2",
        {**GGUF_SANDWICH_NORMS, **GGUF_ATTENTION, **GGUF_GATED_MLP},
        one_plus=True,
        windows_in_some=True,
        settings={
            "sliding_window": ".attention.sliding_window",
            "attn_logit_softcapping": ".attn_logit_softcapping",
            "final_logit_softcapping": ".final_logit_softcapping",
        },
        # Unless a file says otherwise, every other layer has no window, which is transformers' default.
        derived=lambda fields: {"query_pre_attn_scalar": query_scalar(fields, _LAYERS_OF_27B)},
    )

    attention: tuple[AttentionParams, ...]
    attention_bias: bool
    logit_cap: float | None

    @classmethod
    def read(cls, config: Configuration) -> Self:
        require_activation(config.hidden_activation, "gelu_pytorch_tanh")
        require_full_rotary(config)
        return cls._read(config)

    @classmethod
    def _read(cls, config: Configuration) -> Self:
        if config.use_bidirectional_attention:
            raise UnsupportedModelError("bidirectional attention is not implemented")
        scale, cap = config.query_pre_attn_scalar**-0.5, config.attn_logit_softcapping
        return cls(
            attention=tuple(AttentionParams(scale, window, cap) for window in layer_windows(config)),
            attention_bias=config.attention_bias,
            logit_cap=config.final_logit_softcapping,
        )

    @property
    def windows(self) -> Windows:
        return tuple(params.window for params in self.attention)

    def build(self, build: ModelBuilder) -> Decoder:
        # transformers rounds the factor to the model's type
        factor = torch.tensor(build.shape.hidden_size**0.5).to(build.embedding.dtype).item()
        layers = build.layers(self.layer)
        norm = FinalNorm(one_plus(build, "model.norm", build.shape.hidden_size), build.shape.norm_eps)
        head = build.head()
        return Decoder(
            embedding=build.token_embedding(factor),
            layers=layers,
            norm=norm,
            head=LinearHead(head) if self.logit_cap is None else SoftCappedHead(head, self.logit_cap),
        )

    def layer(self, build: ModelBuilder, prefix: str, index: int) -> SandwichNormLayer:
        hidden, eps = build.shape.hidden_size, build.shape.norm_eps
        attention = self._attention(build, prefix + "self_attn.", index)
        gate_up = build.gate_up(prefix + "mlp.")

        def norm_weight(name: str) -> Tensor:
            return one_plus(build, prefix + name, hidden)

        return SandwichNormLayer(
            before_attention=AddRMSNorm(norm_weight("input_layernorm"), eps, attention.qkv.takes_fp8),
            attention=attention,
            after_attention=RMSNorm(norm_weight("post_attention_layernorm"), eps),
            before_mlp=AddRMSNorm(norm_weight("pre_feedforward_layernorm"), eps, gate_up.takes_fp8),
            mlp=GeGLU(gate_up, build.down(prefix + "mlp.")),
            after_mlp=RMSNorm(norm_weight("post_feedforward_layernorm"), eps),
        )

    def _attention(self, build: ModelBuilder, prefix: str, index: int) -> SelfAttention:
        qkv = build.qkv(prefix, bias=self.attention_bias)
        output = build.attention_output(prefix, bias=self.attention_bias)
        return build.attention(qkv, output, build.rotary, self.attention[index])


def one_plus(build: ModelBuilder, name: str, size: int) -> Tensor:
    """A norm's 1 + w [size] float32."""
    return build.held(build.float32(f"{name}.weight", size).add_(1.0))
