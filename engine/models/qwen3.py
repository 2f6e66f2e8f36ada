"""Qwen3: queries and keys are normalized head by head before they are rotated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

from thothy_ai.engine.checkpoint.configuration import Configuration
from thothy_ai.engine.models.builder import ModelBuilder
from thothy_ai.engine.models.decoder import Decoder
from thothy_ai.engine.models.family import Windows, layer_windows, require_activation, require_full_rotary
from thothy_ai.engine.models.gguf_names import GGUF_LLAMA_LAYER, GGUF_QK_NORMS, GGUFNames
from thothy_ai.engine.models.layers.blocks import PreNormLayer
from thothy_ai.engine.models.layers.mlp import SwiGLU
from thothy_ai.kernels.paged import AttentionParams


@dataclass(frozen=True, slots=True)
class Qwen3:
    model_type: ClassVar[str] = "qwen3"
    gguf: ClassVar[GGUFNames | None] = GGUFNames("qwen3", {**GGUF_LLAMA_LAYER, **GGUF_QK_NORMS})

    windows: Windows
    attention_bias: bool

    @classmethod
    def read(cls, config: Configuration) -> Self:
        require_activation(config.hidden_act, "silu")
        require_full_rotary(config)
        return cls(windows=layer_windows(config), attention_bias=config.attention_bias)

    def build(self, build: ModelBuilder) -> Decoder:
        return build.decoder(self.layer)

    def layer(self, build: ModelBuilder, prefix: str, index: int) -> PreNormLayer:
        qkv = build.qkv(prefix + "self_attn.", bias=self.attention_bias)
        output = build.attention_output(prefix + "self_attn.", bias=self.attention_bias)
        gate_up = build.gate_up(prefix + "mlp.")
        params = AttentionParams(window=self.windows[index])
        return PreNormLayer(
            attention_norm=build.add_norm(prefix + "input_layernorm", before=qkv),
            attention=build.attention(qkv, output, build.rotary, params, qk_norm=build.qk_norm(prefix + "self_attn.")),
            mlp_norm=build.add_norm(prefix + "post_attention_layernorm", before=gate_up),
            mlp=SwiGLU(gate_up, build.down(prefix + "mlp.")),
        )
