"""OLMo 2: norms after each block instead of before it, and over whole query and key projections."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self

from thothy_ai.engine.models.family import (
    GGUF_ATTENTION,
    GGUF_GATED_MLP,
    GGUF_QK_NORMS,
    NO_WINDOW,
    GGUFNames,
    Windows,
    require_activation,
    require_full_rotary,
)
from thothy_ai.engine.models.layers.attention import Attention
from thothy_ai.engine.models.layers.blocks import PostNormLayer
from thothy_ai.engine.models.layers.mlp import SwiGLU
from thothy_ai.engine.models.layers.norm import RMSNorm, WholeRMSNorm

if TYPE_CHECKING:
    from thothy_ai.engine.checkpoint.configuration import Configuration
    from thothy_ai.engine.models.builder import ModelBuilder
    from thothy_ai.engine.models.decoder import Decoder


@dataclass(frozen=True, slots=True)
class Olmo2:
    """Whether attention has biases."""

    model_type: ClassVar[str] = "olmo2"
    gguf: ClassVar[GGUFNames | None] = GGUFNames(
        "olmo2",
        {
            "post_attention_norm": "post_attention_layernorm",
            "post_ffw_norm": "post_feedforward_layernorm",
            **GGUF_QK_NORMS,
            **GGUF_ATTENTION,
            **GGUF_GATED_MLP,
        },
    )

    attention_bias: bool
    windows: Windows = NO_WINDOW

    @classmethod
    def read(cls, config: Configuration) -> Self:
        """From a model's configuration."""
        require_activation(config.hidden_act, "silu")
        require_full_rotary(config)
        return cls(attention_bias=config.attention_bias)

    def build(self, build: ModelBuilder) -> Decoder:
        """The decoder."""
        return build.decoder(self._layer(build, f"model.layers.{index}.") for index in range(build.shape.num_layers))

    def _layer(self, build: ModelBuilder, prefix: str) -> PostNormLayer:
        hidden, eps, mlp = build.shape.hidden_size, build.shape.norm_eps, prefix + "mlp."
        return PostNormLayer(
            attention=self._attention(build, prefix + "self_attn."),
            after_attention=RMSNorm(build.vector(prefix + "post_attention_layernorm.weight", hidden), eps),
            mlp=SwiGLU(build.gate_up(mlp), build.down(mlp)),
            after_mlp=RMSNorm(build.vector(prefix + "post_feedforward_layernorm.weight", hidden), eps),
        )

    def _attention(self, build: ModelBuilder, prefix: str) -> Attention:
        config, size = build.shape, build.shape.head_dim
        return Attention(
            qkv=build.qkv(prefix, bias=self.attention_bias),
            output=build.attention_output(prefix, bias=self.attention_bias),
            rotary=build.rotary,
            num_heads=config.num_heads,
            head_dim=size,
            norm_eps=config.norm_eps,
            projection_norm=WholeRMSNorm(
                build.vector(prefix + "q_norm.weight", config.num_heads * size),
                build.vector(prefix + "k_norm.weight", config.num_kv_heads * size),
                config.norm_eps,
            ),
        )
