"""GLM-4-0414 (9B, 32B): GLM with further norms after each block."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

from thothy_ai.engine.checkpoint.configuration import Configuration
from thothy_ai.engine.models.builder import ModelBuilder
from thothy_ai.engine.models.decoder import Decoder
from thothy_ai.engine.models.family import Windows, require_activation, same_window
from thothy_ai.engine.models.gguf_names import GGUF_ATTENTION, GGUF_FUSED_MLP, GGUF_NORMS_BEFORE, GGUFNames
from thothy_ai.engine.models.layers.blocks import SandwichNormLayer
from thothy_ai.engine.models.layers.mlp import SwiGLU


@dataclass(frozen=True, slots=True)
class Glm4:
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

    windows: Windows
    qkv_bias: bool

    @classmethod
    def read(cls, config: Configuration) -> Self:
        require_activation(config.hidden_act, "silu")
        return cls(windows=same_window(config), qkv_bias=config.attention_bias)

    def build(self, build: ModelBuilder) -> Decoder:
        return build.decoder(self.layer)

    def layer(self, build: ModelBuilder, prefix: str, _index: int) -> SandwichNormLayer:
        qkv = build.interleaved_qkv(prefix + "self_attn.", bias=self.qkv_bias)
        output = build.attention_output(prefix + "self_attn.")
        gate_up = build.fused_gate_up(prefix + "mlp.")
        return SandwichNormLayer(
            before_attention=build.add_norm(prefix + "input_layernorm", before=qkv),
            attention=build.attention(qkv, output, build.rotary),
            after_attention=build.rms_norm(prefix + "post_self_attn_layernorm"),
            before_mlp=build.add_norm(prefix + "post_attention_layernorm", before=gate_up),
            mlp=SwiGLU(gate_up, build.down(prefix + "mlp.")),
            after_mlp=build.rms_norm(prefix + "post_mlp_layernorm"),
        )
