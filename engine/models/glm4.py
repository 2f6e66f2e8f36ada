"""GLM-4-0414 (9B, 32B): GLM with norms after each block, too."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self

from thothy_ai.engine.models.family import (
    GGUF_ATTENTION,
    GGUF_FUSED_MLP,
    GGUF_NORMS_BEFORE,
    NO_WINDOW,
    GGUFNames,
    Windows,
    require_activation,
)
from thothy_ai.engine.models.layers.attention import Attention
from thothy_ai.engine.models.layers.blocks import SandwichNormLayer
from thothy_ai.engine.models.layers.mlp import SwiGLU
from thothy_ai.engine.models.layers.norm import RMSNorm

if TYPE_CHECKING:
    from thothy_ai.engine.checkpoint.configuration import Configuration
    from thothy_ai.engine.models.builder import ModelBuilder
    from thothy_ai.engine.models.decoder import Decoder


@dataclass(frozen=True, slots=True)
class Glm4:
    """Whether queries, keys and values have biases."""

    model_type: ClassVar[str] = "glm4"
    gguf: ClassVar[GGUFNames | None] = GGUFNames(
        "glm4",
        {
            **GGUF_NORMS_BEFORE,
            "post_attention_norm": "post_self_attn_layernorm",
            "post_ffw_norm": "post_mlp_layernorm",
            **GGUF_ATTENTION,
            **GGUF_FUSED_MLP,
        },
        partial_rotary=True,
    )

    attention_bias: bool
    windows: Windows = NO_WINDOW

    @classmethod
    def read(cls, config: Configuration) -> Self:
        """From a model's configuration."""
        require_activation(config.hidden_act, "silu")
        return cls(attention_bias=config.attention_bias)

    def build(self, build: ModelBuilder) -> Decoder:
        """The decoder."""
        return build.decoder(self._layer(build, f"model.layers.{index}.") for index in range(build.shape.num_layers))

    def _layer(self, build: ModelBuilder, prefix: str) -> SandwichNormLayer:
        config, heads, mlp = build.shape, prefix + "self_attn.", prefix + "mlp."
        qkv = build.interleaved_qkv(heads, bias=self.attention_bias)
        output = build.attention_output(heads)
        gate_up = build.fused_gate_up(mlp)

        def norm(name: str) -> RMSNorm:
            return RMSNorm(build.vector(f"{prefix}{name}.weight", config.hidden_size), config.norm_eps)

        return SandwichNormLayer(
            before_attention=build.add_norm(prefix + "input_layernorm", before=qkv),
            attention=Attention(qkv, output, build.rotary, config.num_heads, config.head_dim, config.norm_eps),
            after_attention=norm("post_self_attn_layernorm"),
            before_mlp=build.add_norm(prefix + "post_attention_layernorm", before=gate_up),
            mlp=SwiGLU(gate_up, build.down(mlp)),
            after_mlp=norm("post_mlp_layernorm"),
        )
