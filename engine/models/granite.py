"""Granite 3: Llama with multipliers for embeddings, scores, residual updates and logits.

The model adds updates times m to the residual stream. Here the stream is kept divided by m, so that updates are added
unchanged, and norms give the same results with an epsilon divided by m squared. Only the embedding and the epsilons
therefore depend on m. The division of logits is part of the final norm's weight, which is kept in float32.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

from thothy_ai.engine.api.errors import UnsupportedModelError
from thothy_ai.engine.checkpoint.configuration import Configuration
from thothy_ai.engine.models.builder import ModelBuilder
from thothy_ai.engine.models.decoder import Decoder
from thothy_ai.engine.models.family import Windows, require_activation, require_full_rotary, same_window
from thothy_ai.engine.models.gguf_names import GGUF_LLAMA_LAYER, GGUFNames
from thothy_ai.engine.models.layers.blocks import PreNormLayer
from thothy_ai.engine.models.layers.embedding import LinearHead
from thothy_ai.engine.models.layers.mlp import SwiGLU
from thothy_ai.engine.models.layers.norm import FinalNorm
from thothy_ai.kernels.paged import AttentionParams

GGUF_GRANITE_SETTINGS = {
    "embedding_multiplier": ".embedding_scale",
    "residual_multiplier": ".residual_scale",
    "attention_multiplier": ".attention.scale",
    "logits_scaling": ".logit_scale",
}


@dataclass(frozen=True, slots=True)
class Granite:
    """The multipliers have transformers' names; logits are divided by `logits_scaling`."""

    model_type: ClassVar[str] = "granite"
    gguf: ClassVar[GGUFNames | None] = GGUFNames(
        "granite",
        GGUF_LLAMA_LAYER,
        interleaved=True,
        settings=GGUF_GRANITE_SETTINGS,
    )

    windows: Windows
    attention_bias: bool
    mlp_bias: bool
    embedding_multiplier: float
    residual_multiplier: float
    attention_multiplier: float
    logits_scaling: float

    @classmethod
    def read(cls, config: Configuration) -> Self:
        require_activation(config.hidden_act, "silu")
        require_full_rotary(config)
        for name in ("residual_multiplier", "logits_scaling"):
            if not getattr(config, name) > 0:
                raise UnsupportedModelError(f"a {name} of {getattr(config, name)} is not implemented")
        return cls(
            windows=same_window(config),
            attention_bias=config.attention_bias,
            mlp_bias=config.mlp_bias,
            embedding_multiplier=config.embedding_multiplier,
            residual_multiplier=config.residual_multiplier,
            attention_multiplier=config.attention_multiplier,
            logits_scaling=config.logits_scaling,
        )

    def build(self, build: ModelBuilder) -> Decoder:
        weight = build.float32("model.norm.weight", build.shape.hidden_size).div_(self.logits_scaling)
        return Decoder(
            embedding=build.token_embedding(self.embedding_multiplier / self.residual_multiplier),
            layers=build.layers(self.layer),
            norm=FinalNorm(build.held(weight), self._eps(build)),
            head=LinearHead(build.head()),
        )

    def layer(self, build: ModelBuilder, prefix: str, _index: int) -> PreNormLayer:
        qkv = build.qkv(prefix + "self_attn.", bias=self.attention_bias)
        output = build.attention_output(prefix + "self_attn.", bias=self.attention_bias)
        gate_up = build.gate_up(prefix + "mlp.", bias=self.mlp_bias)
        return PreNormLayer(
            attention_norm=build.add_norm(prefix + "input_layernorm", qkv, self._eps(build)),
            attention=build.attention(qkv, output, build.rotary, AttentionParams(scale=self.attention_multiplier)),
            mlp_norm=build.add_norm(prefix + "post_attention_layernorm", gate_up, self._eps(build)),
            mlp=SwiGLU(gate_up, build.down(prefix + "mlp.", bias=self.mlp_bias)),
        )

    def _eps(self, build: ModelBuilder) -> float:
        return build.shape.norm_eps / self.residual_multiplier**2
