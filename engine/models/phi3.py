"""Phi-3, Phi-3.5 and Phi-4: merged projections; in some models long and partial rotary embedding, or a window."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

from thothy_ai.engine.models.family import GGUF_FUSED_MLP, GGUF_NORMS_BEFORE, GGUFNames, Windows, require_activation
from thothy_ai.engine.models.layers.attention import Attention
from thothy_ai.engine.models.layers.blocks import PreNormLayer
from thothy_ai.engine.models.layers.mlp import SwiGLU
from thothy_ai.kernels.paged import AttentionParams

if TYPE_CHECKING:
    from thothy_ai.engine.checkpoint.configuration import Configuration
    from thothy_ai.engine.models.builder import ModelBuilder
    from thothy_ai.engine.models.decoder import Decoder


def _derived(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """Of a GGUF file's fields: no window is 0 there; transformers wants the original context beside its rope, too."""
    original = fields["rope_parameters"].get("original_max_position_embeddings", fields["max_position_embeddings"])
    return {"sliding_window": fields["sliding_window"] or None, "original_max_position_embeddings": original}


@dataclass(frozen=True, slots=True)
class Phi3:
    """How far a token sees, the same in all layers."""

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
        """From a model's configuration."""
        require_activation(config.hidden_act, "silu")
        return cls(windows=(config.sliding_window,))

    def build(self, build: ModelBuilder) -> Decoder:
        """The decoder."""
        return build.decoder(self._layer(build, f"model.layers.{index}.") for index in range(build.shape.num_layers))

    def _layer(self, build: ModelBuilder, prefix: str) -> PreNormLayer:
        config, heads, mlp = build.shape, prefix + "self_attn.", prefix + "mlp."
        qkv = build.fused_qkv(heads)
        output = build.attention_output(heads)
        gate_up = build.fused_gate_up(mlp)
        params = AttentionParams(window=self.windows[0]).within(config.max_context)
        return PreNormLayer(
            attention_norm=build.add_norm(prefix + "input_layernorm", before=qkv),
            attention=Attention(
                qkv, output, build.rotary, config.num_heads, config.head_dim, config.norm_eps, params=params
            ),
            mlp_norm=build.add_norm(prefix + "post_attention_layernorm", before=gate_up),
            mlp=SwiGLU(gate_up, build.down(mlp)),
        )
