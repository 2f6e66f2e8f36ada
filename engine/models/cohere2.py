"""Command R7B and Command A: as Command R, with windows in most layers; the others see everything and no positions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self

from thothy_ai.engine.models.cohere import final_layer_norm
from thothy_ai.engine.models.decoder import Decoder
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
from thothy_ai.engine.models.layers.blocks import ParallelLayer
from thothy_ai.engine.models.layers.embedding import LinearHead, TokenEmbedding
from thothy_ai.engine.models.layers.mlp import SwiGLU
from thothy_ai.engine.models.layers.norm import LayerNorm
from thothy_ai.kernels.paged import AttentionParams

if TYPE_CHECKING:
    from thothy_ai.engine.checkpoint.configuration import Configuration
    from thothy_ai.engine.models.builder import ModelBuilder


@dataclass(frozen=True, slots=True)
class Cohere2:
    """Whether attention has biases, how far each layer sees, and what logits are multiplied by."""

    model_type: ClassVar[str] = "cohere2"
    gguf: ClassVar[GGUFNames | None] = GGUFNames(
        "cohere2",
        {"attn_norm": "input_layernorm", **GGUF_ATTENTION, **GGUF_GATED_MLP},
        optional_bias=False,
        settings={"logit_scale": ".logit_scale", "sliding_window": ".attention.sliding_window"},
        norm_eps=("layer_norm_eps", ".attention.layer_norm_epsilon"),
    )  # every fourth layer is without a window, which such a file leaves unsaid

    attention_bias: bool
    windows: Windows
    logit_scale: float

    @classmethod
    def read(cls, config: Configuration) -> Self:
        """From a model's configuration."""
        require_activation(config.hidden_act, "silu")
        require_full_rotary(config)
        return cls(attention_bias=config.attention_bias, windows=layer_windows(config), logit_scale=config.logit_scale)

    def build(self, build: ModelBuilder) -> Decoder:
        """The decoder."""
        return Decoder(
            embedding=TokenEmbedding(build.embedding),
            layers=tuple(
                self._layer(build, f"model.layers.{index}.", window) for index, window in enumerate(self.windows)
            ),
            norm=final_layer_norm(build, self.logit_scale),
            head=LinearHead(build.head()),
        )

    def _layer(self, build: ModelBuilder, prefix: str, window: int | None) -> ParallelLayer:
        config, heads, mlp = build.shape, prefix + "self_attn.", prefix + "mlp."
        return ParallelLayer(
            norm=LayerNorm(build.vector(prefix + "input_layernorm.weight", config.hidden_size), config.norm_eps),
            attention=Attention(
                qkv=build.interleaved_qkv(heads, bias=self.attention_bias),
                output=build.attention_output(heads, bias=self.attention_bias),
                rotary=None if window is None else build.rotary,
                num_heads=config.num_heads,
                head_dim=config.head_dim,
                norm_eps=config.norm_eps,
                params=AttentionParams(window=window).within(config.max_context),
            ),
            mlp=SwiGLU(build.gate_up(mlp), build.down(mlp)),
        )
