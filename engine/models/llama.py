"""Llama 1 to 3, and all that took its architecture (SmolLM2, TinyLlama, Yi)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self

from thothy_ai.engine.models.family import (
    GGUF_ATTENTION,
    GGUF_GATED_MLP,
    NO_WINDOW,
    GGUFNames,
    Windows,
    require_activation,
    require_full_rotary,
)
from thothy_ai.engine.models.layers.attention import Attention
from thothy_ai.engine.models.layers.blocks import PreNormLayer
from thothy_ai.engine.models.layers.mlp import SwiGLU

if TYPE_CHECKING:
    from thothy_ai.engine.checkpoint.configuration import Configuration
    from thothy_ai.engine.models.builder import ModelBuilder
    from thothy_ai.engine.models.decoder import Decoder


@dataclass(frozen=True, slots=True)
class Llama:
    """Which projections have biases."""

    model_type: ClassVar[str] = "llama"
    gguf: ClassVar[GGUFNames | None] = GGUFNames(
        "llama",
        {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", **GGUF_ATTENTION, **GGUF_GATED_MLP},
        interleaved=True,
    )

    attention_bias: bool
    mlp_bias: bool
    windows: Windows = NO_WINDOW

    @classmethod
    def read(cls, config: Configuration) -> Self:
        """From a model's configuration."""
        require_activation(config.hidden_act, "silu")
        require_full_rotary(config)
        return cls(attention_bias=config.attention_bias, mlp_bias=config.mlp_bias)

    def build(self, build: ModelBuilder) -> Decoder:
        """The decoder."""
        return build.decoder(self._layer(build, f"model.layers.{index}.") for index in range(build.shape.num_layers))

    def _layer(self, build: ModelBuilder, prefix: str) -> PreNormLayer:
        config, heads, mlp = build.shape, prefix + "self_attn.", prefix + "mlp."
        qkv = build.qkv(heads, bias=self.attention_bias)
        output = build.attention_output(heads, bias=self.attention_bias)
        gate_up = build.gate_up(mlp, bias=self.mlp_bias)
        return PreNormLayer(
            attention_norm=build.add_norm(prefix + "input_layernorm", before=qkv),
            attention=Attention(qkv, output, build.rotary, config.num_heads, config.head_dim, config.norm_eps),
            mlp_norm=build.add_norm(prefix + "post_attention_layernorm", before=gate_up),
            mlp=SwiGLU(gate_up, build.down(mlp, bias=self.mlp_bias)),
        )
