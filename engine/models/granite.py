"""Granite 3: Llama with multipliers for embeddings, scores, residual updates and logits.

An update times m added to the residual stream is, in a stream divided by m, the update itself. A stream divided by m
is normalized to the same, with an epsilon divided by m squared. Thus only the embedding and the epsilons know m.
Logits are divided in the final norm's weight, which is kept in float32.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self

from thothy_ai.engine.api.errors import UnsupportedModelError
from thothy_ai.engine.models.decoder import Decoder
from thothy_ai.engine.models.family import (
    GGUF_ATTENTION,
    GGUF_GATED_MLP,
    GGUF_NORMS_BEFORE,
    NO_WINDOW,
    GGUFNames,
    Windows,
    require_activation,
    require_full_rotary,
)
from thothy_ai.engine.models.layers.attention import Attention
from thothy_ai.engine.models.layers.blocks import PreNormLayer
from thothy_ai.engine.models.layers.embedding import LinearHead, ScaledEmbedding
from thothy_ai.engine.models.layers.linear import Linear
from thothy_ai.engine.models.layers.mlp import SwiGLU
from thothy_ai.engine.models.layers.norm import AddRMSNorm, FinalNorm
from thothy_ai.kernels.paged import AttentionParams

if TYPE_CHECKING:
    from thothy_ai.engine.checkpoint.configuration import Configuration
    from thothy_ai.engine.models.builder import ModelBuilder


@dataclass(frozen=True, slots=True)
class Granite:
    """Which projections have biases, and the multipliers; logits are divided by `logits_scaling`."""

    model_type: ClassVar[str] = "granite"
    gguf: ClassVar[GGUFNames | None] = GGUFNames(
        "granite",
        {**GGUF_NORMS_BEFORE, **GGUF_ATTENTION, **GGUF_GATED_MLP},
        interleaved=True,
        settings={
            "embedding_multiplier": ".embedding_scale",
            "residual_multiplier": ".residual_scale",
            "attention_multiplier": ".attention.scale",
            "logits_scaling": ".logit_scale",
        },
    )

    attention_bias: bool
    mlp_bias: bool
    embedding_multiplier: float
    residual_multiplier: float
    attention_multiplier: float
    logits_scaling: float
    windows: Windows = NO_WINDOW

    @classmethod
    def read(cls, config: Configuration) -> Self:
        """From a model's configuration."""
        require_activation(config.hidden_act, "silu")
        require_full_rotary(config)
        for name in ("residual_multiplier", "logits_scaling"):
            if not getattr(config, name) > 0:
                raise UnsupportedModelError(f"a {name} of {getattr(config, name)} is not implemented")
        return cls(
            attention_bias=config.attention_bias,
            mlp_bias=config.mlp_bias,
            embedding_multiplier=config.embedding_multiplier,
            residual_multiplier=config.residual_multiplier,
            attention_multiplier=config.attention_multiplier,
            logits_scaling=config.logits_scaling,
        )

    def build(self, build: ModelBuilder) -> Decoder:
        """The decoder."""
        weight = build.float32("model.norm.weight", build.shape.hidden_size).div_(self.logits_scaling)
        return Decoder(
            embedding=ScaledEmbedding(build.embedding, self.embedding_multiplier / self.residual_multiplier),
            layers=tuple(self._layer(build, f"model.layers.{index}.") for index in range(build.shape.num_layers)),
            norm=FinalNorm(build.held(weight), self._eps(build)),
            head=LinearHead(build.head()),
        )

    def _layer(self, build: ModelBuilder, prefix: str) -> PreNormLayer:
        config, heads, mlp = build.shape, prefix + "self_attn.", prefix + "mlp."
        qkv = build.qkv(heads, bias=self.attention_bias)
        output = build.attention_output(heads, bias=self.attention_bias)
        gate_up = build.gate_up(mlp, bias=self.mlp_bias)
        params = AttentionParams(scale=self.attention_multiplier)
        return PreNormLayer(
            attention_norm=self._norm(build, prefix + "input_layernorm", qkv),
            attention=Attention(
                qkv, output, build.rotary, config.num_heads, config.head_dim, config.norm_eps, params=params
            ),
            mlp_norm=self._norm(build, prefix + "post_attention_layernorm", gate_up),
            mlp=SwiGLU(gate_up, build.down(mlp, bias=self.mlp_bias)),
        )

    def _norm(self, build: ModelBuilder, name: str, before: Linear) -> AddRMSNorm:
        weight = build.vector(f"{name}.weight", build.shape.hidden_size)
        return AddRMSNorm(weight, self._eps(build), before.takes_fp8)

    def _eps(self, build: ModelBuilder) -> float:
        return build.shape.norm_eps / self.residual_multiplier**2
