"""GLM-4-9B of 2024 as transformers keeps it: interleaved, partial rotary embedding, a merged gate and up projection."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

from thothy_ai.engine.checkpoint.configuration import Configuration
from thothy_ai.engine.models.builder import ModelBuilder
from thothy_ai.engine.models.decoder import Decoder
from thothy_ai.engine.models.family import Windows, require_activation, same_window
from thothy_ai.engine.models.gguf_names import GGUFNames
from thothy_ai.engine.models.layers.blocks import PreNormLayer
from thothy_ai.engine.models.layers.mlp import SwiGLU


@dataclass(frozen=True, slots=True)
class Glm:
    model_type: ClassVar[str] = "glm"
    gguf: ClassVar[GGUFNames | None] = None

    windows: Windows
    qkv_bias: bool

    @classmethod
    def read(cls, config: Configuration) -> Self:
        require_activation(config.hidden_act, "silu")
        return cls(windows=same_window(config), qkv_bias=config.attention_bias)

    def build(self, build: ModelBuilder) -> Decoder:
        return build.decoder(self.layer)

    def layer(self, build: ModelBuilder, prefix: str, _index: int) -> PreNormLayer:
        qkv = build.interleaved_qkv(prefix + "self_attn.", bias=self.qkv_bias)
        output = build.attention_output(prefix + "self_attn.")
        gate_up = build.fused_gate_up(prefix + "mlp.")
        return PreNormLayer(
            attention_norm=build.add_norm(prefix + "input_layernorm", before=qkv),
            attention=build.attention(qkv, output, build.rotary),
            mlp_norm=build.add_norm(prefix + "post_attention_layernorm", before=gate_up),
            mlp=SwiGLU(gate_up, build.down(prefix + "mlp.")),
        )
