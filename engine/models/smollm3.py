"""SmolLM3: Llama with some layers that have no positions (NoPE, every fourth one), and perhaps a window in these."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

from thothy_ai.engine.api.errors import UnsupportedModelError
from thothy_ai.engine.checkpoint.configuration import Configuration
from thothy_ai.engine.models.builder import ModelBuilder
from thothy_ai.engine.models.decoder import Decoder
from thothy_ai.engine.models.family import (
    Windows,
    layer_windows,
    require_activation,
    require_full_rotary,
    same_window,
)
from thothy_ai.engine.models.gguf_names import GGUF_LLAMA_LAYER, GGUFNames
from thothy_ai.engine.models.layers.blocks import PreNormLayer
from thothy_ai.engine.models.layers.mlp import SwiGLU
from thothy_ai.kernels.paged import AttentionParams


@dataclass(frozen=True, slots=True)
class SmolLM3:
    """`rotates` says of each layer whether it has rotary positions, or none at all."""

    model_type: ClassVar[str] = "smollm3"
    # Every fourth layer is without positions; such a file does not say so, and transformers does by default.
    gguf: ClassVar[GGUFNames | None] = GGUFNames("smollm3", GGUF_LLAMA_LAYER, interleaved=True)

    windows: Windows
    rotates: tuple[bool, ...]
    attention_bias: bool
    mlp_bias: bool

    @classmethod
    def read(cls, config: Configuration) -> Self:
        require_activation(config.hidden_act, "silu")
        require_full_rotary(config)
        rotates = tuple(bool(each) for each in config.no_rope_layers)
        if len(rotates) < config.num_hidden_layers:
            raise UnsupportedModelError(f"no_rope_layers names {len(rotates)} layers of {config.num_hidden_layers}")
        return cls(
            windows=layer_windows(config) if config.use_sliding_window else same_window(config),
            rotates=rotates,
            attention_bias=config.attention_bias,
            mlp_bias=config.mlp_bias,
        )

    def build(self, build: ModelBuilder) -> Decoder:
        return build.decoder(self.layer)

    def layer(self, build: ModelBuilder, prefix: str, index: int) -> PreNormLayer:
        qkv = build.qkv(prefix + "self_attn.", bias=self.attention_bias)
        output = build.attention_output(prefix + "self_attn.", bias=self.attention_bias)
        rotary = build.rotary if self.rotates[index] else None
        gate_up = build.gate_up(prefix + "mlp.", bias=self.mlp_bias)
        return PreNormLayer(
            attention_norm=build.add_norm(prefix + "input_layernorm", before=qkv),
            attention=build.attention(qkv, output, rotary, AttentionParams(window=self.windows[index])),
            mlp_norm=build.add_norm(prefix + "post_attention_layernorm", before=gate_up),
            mlp=SwiGLU(gate_up, build.down(prefix + "mlp.", bias=self.mlp_bias)),
        )
