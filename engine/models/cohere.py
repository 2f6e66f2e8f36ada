"""Command R and Command R+: attention and MLP side by side, layer norms, interleaved rotary embedding, scaled logits.

Logits are scaled in the final norm's weight, which is kept in float32.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self

from thothy_ai.engine.models.decoder import Decoder
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
from thothy_ai.engine.models.interleaved import reordered_rows
from thothy_ai.engine.models.layers.attention import Attention
from thothy_ai.engine.models.layers.blocks import ParallelLayer
from thothy_ai.engine.models.layers.embedding import LinearHead, TokenEmbedding
from thothy_ai.engine.models.layers.mlp import SwiGLU
from thothy_ai.engine.models.layers.norm import FinalLayerNorm, HeadLayerNorm, LayerNorm

if TYPE_CHECKING:
    from torch import Tensor

    from thothy_ai.engine.checkpoint.configuration import Configuration
    from thothy_ai.engine.models.builder import ModelBuilder


@dataclass(frozen=True, slots=True)
class Cohere:
    """Whether attention has biases, whether each head is normalized, and what logits are multiplied by."""

    model_type: ClassVar[str] = "cohere"
    gguf: ClassVar[GGUFNames | None] = GGUFNames(
        "command-r",
        {"attn_norm": "input_layernorm", **GGUF_QK_NORMS, **GGUF_ATTENTION, **GGUF_GATED_MLP},
        settings={"logit_scale": ".logit_scale"},
        present={"use_qk_norm": "attn_q_norm.weight"},
        norm_eps=("layer_norm_eps", ".attention.layer_norm_epsilon"),
    )

    attention_bias: bool
    head_norms: bool
    logit_scale: float
    windows: Windows = NO_WINDOW

    @classmethod
    def read(cls, config: Configuration) -> Self:
        """From a model's configuration."""
        require_activation(config.hidden_act, "silu")
        require_full_rotary(config)
        return cls(attention_bias=config.attention_bias, head_norms=config.use_qk_norm, logit_scale=config.logit_scale)

    def build(self, build: ModelBuilder) -> Decoder:
        """The decoder."""
        return Decoder(
            embedding=TokenEmbedding(build.embedding),
            layers=tuple(self._layer(build, f"model.layers.{index}.") for index in range(build.shape.num_layers)),
            norm=final_layer_norm(build, self.logit_scale),
            head=LinearHead(build.head()),
        )

    def _layer(self, build: ModelBuilder, prefix: str) -> ParallelLayer:
        config, heads, mlp = build.shape, prefix + "self_attn.", prefix + "mlp."
        return ParallelLayer(
            norm=LayerNorm(build.vector(prefix + "input_layernorm.weight", config.hidden_size), config.norm_eps),
            attention=Attention(
                qkv=build.interleaved_qkv(heads, bias=self.attention_bias),
                output=build.attention_output(heads, bias=self.attention_bias),
                rotary=build.rotary,
                num_heads=config.num_heads,
                head_dim=config.head_dim,
                norm_eps=config.norm_eps,
                projection_norm=_head_norm(build, heads) if self.head_norms else None,
            ),
            mlp=SwiGLU(build.gate_up(mlp), build.down(mlp)),
        )


def final_layer_norm(build: ModelBuilder, logit_scale: float) -> FinalLayerNorm:
    """The norm after the last layer, with logits scaled."""
    weight = build.float32("model.norm.weight", build.shape.hidden_size).mul_(logit_scale)
    return FinalLayerNorm(build.held(weight), build.shape.norm_eps)


def _head_norm(build: ModelBuilder, prefix: str) -> HeadLayerNorm:
    """Weights in the order of the rows that they multiply."""

    def weight(name: str, heads: int) -> Tensor:
        stored = build.vector(f"{prefix}{name}.weight", heads, build.shape.head_dim)
        return reordered_rows(stored.flatten(), build.half_split_order(stored.numel())).view(stored.shape)

    config = build.shape
    return HeadLayerNorm(weight("q_norm", config.num_heads), weight("k_norm", config.num_kv_heads), config.norm_eps)
