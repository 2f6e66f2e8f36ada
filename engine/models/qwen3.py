"""Qwen3: queries and keys are normalized head by head before they are rotated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self

from thothy_ai.engine.models.family import (
    GGUF_ATTENTION,
    GGUF_GATED_MLP,
    GGUFNames,
    Windows,
    layer_windows,
    require_activation,
    require_full_rotary,
)
from thothy_ai.engine.models.layers.attention import Attention
from thothy_ai.engine.models.layers.blocks import PreNormLayer
from thothy_ai.engine.models.layers.mlp import SwiGLU
from thothy_ai.kernels.paged import AttentionParams

if TYPE_CHECKING:
    from thothy_ai.engine.checkpoint.configuration import Configuration
    from thothy_ai.engine.models.builder import ModelBuilder
    from thothy_ai.engine.models.decoder import Decoder


@dataclass(frozen=True, slots=True)
class Qwen3:
    """Whether attention has biases, and how far a token sees in each layer."""

    model_type: ClassVar[str] = "qwen3"
    gguf: ClassVar[GGUFNames | None] = GGUFNames(
        "qwen3",
        {
            "attn_norm": "input_layernorm",
            "attn_q_norm": "self_attn.q_norm",
            "attn_k_norm": "self_attn.k_norm",
            "ffn_norm": "post_attention_layernorm",
            **GGUF_ATTENTION,
            **GGUF_GATED_MLP,
        },
    )

    attention_bias: bool
    windows: Windows

    @classmethod
    def read(cls, config: Configuration) -> Self:
        """From a model's configuration."""
        require_activation(config.hidden_act, "silu")
        require_full_rotary(config)
        return cls(attention_bias=config.attention_bias, windows=layer_windows(config))

    def build(self, build: ModelBuilder) -> Decoder:
        """The decoder."""
        return build.decoder(
            self._layer(build, f"model.layers.{index}.", window) for index, window in enumerate(self.windows)
        )

    def _layer(self, build: ModelBuilder, prefix: str, window: int | None) -> PreNormLayer:
        config, heads, mlp = build.shape, prefix + "self_attn.", prefix + "mlp."
        qkv = build.qkv(heads, bias=self.attention_bias)
        output = build.attention_output(heads, bias=self.attention_bias)
        gate_up = build.gate_up(mlp)
        return PreNormLayer(
            attention_norm=build.add_norm(prefix + "input_layernorm", before=qkv),
            attention=Attention(
                qkv,
                output,
                build.rotary,
                config.num_heads,
                config.head_dim,
                config.norm_eps,
                build.qk_norm(heads),
                params=AttentionParams(window=window).within(config.max_context),
            ),
            mlp_norm=build.add_norm(prefix + "post_attention_layernorm", before=gate_up),
            mlp=SwiGLU(gate_up, build.down(mlp)),
        )
