"""Phi-3, Phi-3.5 and Phi-4: merged projections; in some models long and partial rotary embedding, or a window."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from thothy_ai.engine.checkpoint.configuration import Configuration
from thothy_ai.engine.models.builder import ModelBuilder
from thothy_ai.engine.models.decoder import Decoder
from thothy_ai.engine.models.family import Windows, require_activation, same_window
from thothy_ai.engine.models.gguf_names import GGUF_FUSED_MLP, GGUF_NORMS_BEFORE, GGUFNames
from thothy_ai.engine.models.layers.blocks import PreNormLayer
from thothy_ai.engine.models.layers.mlp import SwiGLU
from thothy_ai.kernels.paged import AttentionParams


def _derived(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """In a GGUF file, 0 means no window. transformers needs the original context also outside the rope parameters."""
    original = fields["rope_parameters"].get("original_max_position_embeddings", fields["max_position_embeddings"])
    return {"sliding_window": fields["sliding_window"] or None, "original_max_position_embeddings": original}


@dataclass(frozen=True, slots=True)
class Phi3:
    model_type: ClassVar[str] = "phi3"
    gguf: ClassVar[GGUFNames | None] = GGUFNames(
        "phi3",
        {
            **GGUF_NORMS_BEFORE,
            "attn_qkv": "self_attn.qkv_proj",
            "attn_output": "self_attn.o_proj",
            **GGUF_FUSED_MLP,
        },
        optional_bias=False,
        partial_rotary=True,
        settings={"sliding_window": ".attention.sliding_window"},
        derived=_derived,
    )

    windows: Windows

    @classmethod
    def read(cls, config: Configuration) -> Self:
        require_activation(config.hidden_act, "silu")
        return cls(windows=same_window(config, config.sliding_window))

    def build(self, build: ModelBuilder) -> Decoder:
        return build.decoder(self.layer)

    def layer(self, build: ModelBuilder, prefix: str, index: int) -> PreNormLayer:
        qkv = build.fused_qkv(prefix + "self_attn.")
        output = build.attention_output(prefix + "self_attn.")
        gate_up = build.fused_gate_up(prefix + "mlp.")
        return PreNormLayer(
            attention_norm=build.add_norm(prefix + "input_layernorm", before=qkv),
            attention=build.attention(qkv, output, build.rotary, AttentionParams(window=self.windows[index])),
            mlp_norm=build.add_norm(prefix + "post_attention_layernorm", before=gate_up),
            mlp=SwiGLU(gate_up, build.down(prefix + "mlp.")),
        )
