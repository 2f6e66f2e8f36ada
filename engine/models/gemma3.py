"""Gemma 3 (text): norms around each block, normalized queries and keys, GeGLU, local layers with their own positions.

Most layers see a sliding window and have another rotary embedding than the few that see everything. As in Gemma 2,
norms multiply by 1 + w, computed and kept in float32.
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
    GGUF_QK_NORMS,
    GGUF_SANDWICH_NORMS,
    GGUFNames,
    Windows,
    layer_windows,
    require_activation,
)
from thothy_ai.engine.models.layers.attention import Attention
from thothy_ai.engine.models.layers.blocks import SandwichNormLayer
from thothy_ai.engine.models.layers.embedding import Head, LinearHead, ScaledEmbedding, SoftCappedHead
from thothy_ai.engine.models.layers.mlp import GeGLU
from thothy_ai.engine.models.layers.norm import AddRMSNorm, FinalNorm, RMSNorm
from thothy_ai.kernels.paged import AttentionParams
from thothy_ai.kernels.rotary import QKNorm

if TYPE_CHECKING:
    from thothy_ai.engine.checkpoint.configuration import Configuration
    from thothy_ai.engine.models.builder import ModelBuilder


_LAYERS_OF_27B = 62


def _unsaid(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a GGUF file leaves to those who read it; llama.cpp's rules. Every sixth layer is without a window."""
    heads_share = fields["hidden_size"] // fields["num_attention_heads"]
    local = {"rope_type": "default", "rope_theta": 10_000.0}
    return {
        "query_pre_attn_scalar": heads_share if fields["num_hidden_layers"] == _LAYERS_OF_27B else fields["head_dim"],
        "rope_parameters": {"full_attention": fields["rope_parameters"], "sliding_attention": local},
    }


@dataclass(frozen=True, slots=True)
class Gemma3:
    """How far each layer sees; layers with a window are the local ones. `logit_cap` None: logits are not capped."""

    model_type: ClassVar[str] = "gemma3_text"
    gguf: ClassVar[GGUFNames | None] = GGUFNames(
        "gemma3",
        {
            **GGUF_SANDWICH_NORMS,
            **GGUF_QK_NORMS,
            **GGUF_ATTENTION,
            **GGUF_GATED_MLP,
        },
        one_plus=True,
        settings={"sliding_window": ".attention.sliding_window"},
        derived=_unsaid,
    )

    windows: Windows
    score_scale: float
    attention_bias: bool
    logit_cap: float | None

    @classmethod
    def read(cls, config: Configuration) -> Self:
        """From a model's configuration."""
        require_activation(config.hidden_activation, "gelu_pytorch_tanh")
        if config.use_bidirectional_attention:
            raise UnsupportedModelError("bidirectional attention is not implemented")
        if config.attn_logit_softcapping is not None:  # which transformers' own Gemma 3 leaves out
            raise UnsupportedModelError("attn_logit_softcapping is not implemented in Gemma 3")
        return cls(
            windows=layer_windows(config),
            score_scale=config.query_pre_attn_scalar**-0.5,
            attention_bias=config.attention_bias,
            logit_cap=config.final_logit_softcapping,
        )

    def build(self, build: ModelBuilder) -> Decoder:
        """The decoder."""
        factor = torch.tensor(build.shape.hidden_size**0.5).to(build.embedding.dtype)
        return Decoder(
            embedding=ScaledEmbedding(build.embedding, factor.item()),
            layers=tuple(
                self._layer(build, f"model.layers.{index}.", window) for index, window in enumerate(self.windows)
            ),
            norm=FinalNorm(_norm_weight(build, "model.norm", build.shape.hidden_size), build.shape.norm_eps),
            head=self._head(build),
        )

    def _layer(self, build: ModelBuilder, prefix: str, window: int | None) -> SandwichNormLayer:
        config, eps, mlp = build.shape, build.shape.norm_eps, prefix + "mlp."
        attention, gate_up = self._attention(build, prefix + "self_attn.", window), build.gate_up(mlp)

        def weight(name: str) -> Tensor:
            return _norm_weight(build, prefix + name, config.hidden_size)

        return SandwichNormLayer(
            before_attention=AddRMSNorm(weight("input_layernorm"), eps, attention.qkv.takes_fp8),
            attention=attention,
            after_attention=RMSNorm(weight("post_attention_layernorm"), eps),
            before_mlp=AddRMSNorm(weight("pre_feedforward_layernorm"), eps, gate_up.takes_fp8),
            mlp=GeGLU(gate_up, build.down(mlp)),
            after_mlp=RMSNorm(weight("post_feedforward_layernorm"), eps),
        )

    def _attention(self, build: ModelBuilder, prefix: str, window: int | None) -> Attention:
        config, size = build.shape, build.shape.head_dim
        return Attention(
            qkv=build.qkv(prefix, bias=self.attention_bias),
            output=build.attention_output(prefix, bias=self.attention_bias),
            rotary=build.rotary if window is None else build.local_rotary,
            num_heads=config.num_heads,
            head_dim=size,
            norm_eps=config.norm_eps,
            qk_norm=QKNorm(_norm_weight(build, prefix + "q_norm", size), _norm_weight(build, prefix + "k_norm", size)),
            params=AttentionParams(scale=self.score_scale, window=window).within(config.max_context),
        )

    def _head(self, build: ModelBuilder) -> Head:
        linear = build.head()
        return LinearHead(linear) if self.logit_cap is None else SoftCappedHead(linear, self.logit_cap)


def _norm_weight(build: ModelBuilder, name: str, size: int) -> Tensor:
    """1 + w [size] float32."""
    return build.held(build.float32(f"{name}.weight", size).add_(1.0))
