"""Llama 1 to 3, and other models with its architecture (SmolLM2, TinyLlama, Yi)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

from thothy_ai.engine.checkpoint.configuration import Configuration
from thothy_ai.engine.models.builder import ModelBuilder
from thothy_ai.engine.models.decoder import Decoder
from thothy_ai.engine.models.family import Windows, require_activation, require_full_rotary, same_window
from thothy_ai.engine.models.gguf_names import GGUF_LLAMA_LAYER, GGUFNames
from thothy_ai.engine.models.layers.blocks import PreNormLayer
from thothy_ai.engine.models.layers.mlp import SwiGLU
from thothy_ai.kernels.paged import AttentionParams


@dataclass(frozen=True, slots=True)
class Llama:
    """Norms before attention and before a gated MLP.

    Subclasses differ in biases and windows, in norms of each head's queries and keys, and in the layers with rotary
    positions: those in `rotates`, or all if that is None.
    """

    model_type: ClassVar[str] = "llama"
    gguf: ClassVar[GGUFNames | None] = GGUFNames("llama", GGUF_LLAMA_LAYER, interleaved=True)

    windows: Windows
    qkv_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    rotates: tuple[bool, ...] | None = None

    @classmethod
    def read(cls, config: Configuration) -> Self:
        require_activation(config.hidden_act, "silu")
        require_full_rotary(config)
        return cls(
            windows=same_window(config),
            qkv_bias=config.attention_bias,
            output_bias=config.attention_bias,
            mlp_bias=config.mlp_bias,
        )

    def build(self, build: ModelBuilder) -> Decoder:
        return build.decoder(self.layer)

    def layer(self, build: ModelBuilder, prefix: str, index: int) -> PreNormLayer:
        qkv = build.qkv(prefix + "self_attn.", bias=self.qkv_bias)
        output = build.attention_output(prefix + "self_attn.", bias=self.output_bias)
        gate_up = build.gate_up(prefix + "mlp.", bias=self.mlp_bias)
        return PreNormLayer(
            attention_norm=build.add_norm(prefix + "input_layernorm", before=qkv),
            attention=build.attention(
                qkv,
                output,
                build.rotary if self.rotates is None or self.rotates[index] else None,
                AttentionParams(window=self.windows[index]),
                qk_norm=build.qk_norm(prefix + "self_attn.") if self.qk_norm else None,
            ),
            mlp_norm=build.add_norm(prefix + "post_attention_layernorm", before=gate_up),
            mlp=SwiGLU(gate_up, build.down(prefix + "mlp.", bias=self.mlp_bias)),
        )
