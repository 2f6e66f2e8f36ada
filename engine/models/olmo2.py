"""OLMo 2: norms after each block instead of before it, and over whole query and key projections."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

from thothy_ai.engine.checkpoint.configuration import Configuration
from thothy_ai.engine.models.builder import ModelBuilder
from thothy_ai.engine.models.decoder import Decoder
from thothy_ai.engine.models.family import Windows, require_activation, require_full_rotary, same_window
from thothy_ai.engine.models.gguf_names import GGUF_ATTENTION, GGUF_GATED_MLP, GGUF_QK_NORMS, GGUFNames
from thothy_ai.engine.models.layers.blocks import PostNormLayer
from thothy_ai.engine.models.layers.mlp import SwiGLU
from thothy_ai.engine.models.layers.norm import WholeRMSNorm

GGUF_OLMO2_LAYER = {
    "post_attention_norm": "post_attention_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
    **GGUF_QK_NORMS,
    **GGUF_ATTENTION,
    **GGUF_GATED_MLP,
}


@dataclass(frozen=True, slots=True)
class Olmo2:
    model_type: ClassVar[str] = "olmo2"
    gguf: ClassVar[GGUFNames | None] = GGUFNames("olmo2", GGUF_OLMO2_LAYER)

    windows: Windows
    attention_bias: bool

    @classmethod
    def read(cls, config: Configuration) -> Self:
        require_activation(config.hidden_act, "silu")
        require_full_rotary(config)
        return cls(windows=same_window(config), attention_bias=config.attention_bias)

    def build(self, build: ModelBuilder) -> Decoder:
        return build.decoder(self.layer)

    def layer(self, build: ModelBuilder, prefix: str, _index: int) -> PostNormLayer:
        heads, shape = prefix + "self_attn.", build.shape
        return PostNormLayer(
            attention=build.attention(
                build.qkv(heads, bias=self.attention_bias),
                build.attention_output(heads, bias=self.attention_bias),
                build.rotary,
                projection_norm=WholeRMSNorm(
                    build.by_head(heads + "q_norm.weight", shape.num_heads),
                    build.by_head(heads + "k_norm.weight", shape.num_kv_heads),
                    shape.norm_eps,
                    build.ranks,
                ),
            ),
            after_attention=build.rms_norm(prefix + "post_attention_layernorm"),
            mlp=SwiGLU(build.gate_up(prefix + "mlp."), build.down(prefix + "mlp.")),
            after_mlp=build.rms_norm(prefix + "post_feedforward_layernorm"),
        )
