"""SmolLM3: Llama with some layers that have no positions (NoPE, every fourth one), and perhaps a window in these."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self

from thothy_ai.engine.api.errors import UnsupportedModelError
from thothy_ai.engine.models.family import (
    GGUF_ATTENTION,
    GGUF_GATED_MLP,
    GGUF_NORMS_BEFORE,
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
class SmolLM3:
    """Which projections have biases; how far each layer sees, and whether it knows positions."""

    model_type: ClassVar[str] = "smollm3"
    gguf: ClassVar[GGUFNames | None] = GGUFNames(
        "smollm3", {**GGUF_NORMS_BEFORE, **GGUF_ATTENTION, **GGUF_GATED_MLP}, interleaved=True
    )  # every fourth layer is without positions, which such a file leaves unsaid

    attention_bias: bool
    mlp_bias: bool
    windows: Windows
    rotates: tuple[bool, ...]

    @classmethod
    def read(cls, config: Configuration) -> Self:
        """From a model's configuration."""
        require_activation(config.hidden_act, "silu")
        require_full_rotary(config)
        rotates = tuple(bool(each) for each in config.no_rope_layers)
        if len(rotates) < config.num_hidden_layers:
            raise UnsupportedModelError(f"no_rope_layers names {len(rotates)} layers of {config.num_hidden_layers}")
        windows = layer_windows(config)
        return cls(
            attention_bias=config.attention_bias,
            mlp_bias=config.mlp_bias,
            windows=windows if config.use_sliding_window else (None,) * len(windows),
            rotates=rotates,
        )

    def build(self, build: ModelBuilder) -> Decoder:
        """The decoder."""
        return build.decoder(self._layer(build, index) for index in range(build.shape.num_layers))

    def _layer(self, build: ModelBuilder, index: int) -> PreNormLayer:
        prefix = f"model.layers.{index}."
        attention = self._attention(build, prefix + "self_attn.", index)
        gate_up = build.gate_up(prefix + "mlp.", bias=self.mlp_bias)
        return PreNormLayer(
            attention_norm=build.add_norm(prefix + "input_layernorm", before=attention.qkv),
            attention=attention,
            mlp_norm=build.add_norm(prefix + "post_attention_layernorm", before=gate_up),
            mlp=SwiGLU(gate_up, build.down(prefix + "mlp.", bias=self.mlp_bias)),
        )

    def _attention(self, build: ModelBuilder, prefix: str, index: int) -> Attention:
        config = build.shape
        return Attention(
            qkv=build.qkv(prefix, bias=self.attention_bias),
            output=build.attention_output(prefix, bias=self.attention_bias),
            rotary=build.rotary if self.rotates[index] else None,
            num_heads=config.num_heads,
            head_dim=config.head_dim,
            norm_eps=config.norm_eps,
            params=AttentionParams(window=self.windows[index]).within(config.max_context),
        )
