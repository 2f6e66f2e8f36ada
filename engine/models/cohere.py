"""Command R and Command R+: attention and MLP side by side, layer norms, interleaved rotary embedding, scaled logits.

Logits are scaled in the final norm's weight, which is kept in float32.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

from torch import Tensor

from thothy_ai.engine.checkpoint.configuration import Configuration
from thothy_ai.engine.models.builder import ModelBuilder
from thothy_ai.engine.models.decoder import Decoder
from thothy_ai.engine.models.family import Windows, require_activation, require_full_rotary, same_window
from thothy_ai.engine.models.gguf_names import GGUF_ATTENTION, GGUF_GATED_MLP, GGUF_QK_NORMS, GGUFNames
from thothy_ai.engine.models.layers.blocks import ParallelLayer
from thothy_ai.engine.models.layers.embedding import LinearHead
from thothy_ai.engine.models.layers.mlp import SwiGLU
from thothy_ai.engine.models.layers.norm import FinalLayerNorm, HeadLayerNorm, LayerNorm
from thothy_ai.kernels.paged import AttentionParams


@dataclass(frozen=True, slots=True)
class Cohere:
    """`rotates`: for each layer, whether it has rotary positions; other layers have no positions."""

    model_type: ClassVar[str] = "cohere"
    gguf: ClassVar[GGUFNames | None] = GGUFNames(
        "command-r",
        {"attn_norm": "input_layernorm", **GGUF_QK_NORMS, **GGUF_ATTENTION, **GGUF_GATED_MLP},
        settings={"logit_scale": ".logit_scale"},
        present={"use_qk_norm": "attn_q_norm.weight"},
        norm_eps=("layer_norm_eps", ".attention.layer_norm_epsilon"),
    )

    windows: Windows
    rotates: tuple[bool, ...]
    attention_bias: bool
    head_norms: bool
    logit_scale: float

    @classmethod
    def read(cls, config: Configuration) -> Self:
        require_activation(config.hidden_act, "silu")
        require_full_rotary(config)
        return cls(
            windows=same_window(config),
            rotates=(True,) * config.num_hidden_layers,
            attention_bias=config.attention_bias,
            head_norms=config.use_qk_norm,
            logit_scale=config.logit_scale,
        )

    def build(self, build: ModelBuilder) -> Decoder:
        embedding = build.token_embedding()
        layers = build.layers(self.layer)
        weight = build.float32("model.norm.weight", build.shape.hidden_size).mul_(self.logit_scale)
        norm = FinalLayerNorm(build.held(weight), build.shape.norm_eps)
        return Decoder(embedding, layers, norm, LinearHead(build.head()))

    def layer(self, build: ModelBuilder, prefix: str, index: int) -> ParallelLayer:
        heads, shape, norms = prefix + "self_attn.", build.shape, None
        if self.head_norms:
            weights = list[Tensor]()
            for name, count in (("q_norm", shape.num_heads), ("k_norm", shape.num_kv_heads)):
                stored = build.vector(f"{heads}{name}.weight", count, shape.head_dim)
                order = build.half_split_order(stored.numel())  # the order of the rows that it multiplies
                weights.append(build.share.of(stored.flatten().index_select(0, order).view(stored.shape)))
            norms = HeadLayerNorm(weights[0], weights[1], shape.norm_eps)
        return ParallelLayer(
            norm=LayerNorm(build.vector(prefix + "input_layernorm.weight", shape.hidden_size), shape.norm_eps),
            attention=build.attention(
                build.interleaved_qkv(heads, bias=self.attention_bias),
                build.attention_output(heads, bias=self.attention_bias),
                build.rotary if self.rotates[index] else None,
                AttentionParams(window=self.windows[index]),
                projection_norm=norms,
            ),
            mlp=SwiGLU(build.gate_up(prefix + "mlp."), build.down(prefix + "mlp.")),
        )
