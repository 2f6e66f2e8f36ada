"""Qwen3 with mixtures of experts: as Qwen3, with experts in place of most layers' MLP."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

from thothy_ai.engine.checkpoint.configuration import Configuration
from thothy_ai.engine.models.builder import ModelBuilder
from thothy_ai.engine.models.decoder import Decoder
from thothy_ai.engine.models.experts import ExpertNames, ExpertSizes
from thothy_ai.engine.models.family import Windows, require_activation, require_full_rotary, same_window
from thothy_ai.engine.models.gguf_names import (
    GGUF_ATTENTION,
    GGUF_EXPERTS,
    GGUF_NORMS_BEFORE,
    GGUF_QK_NORMS,
    GGUF_ROUTER,
    GGUF_SOFTMAX,
    GGUFNames,
)
from thothy_ai.engine.models.layers.experts import SparseBlock, SparseLayer
from thothy_ai.kernels.experts import Routing
from thothy_ai.kernels.paged import AttentionParams


@dataclass(frozen=True, slots=True)
class Qwen3Moe:
    """`sparse`: for each layer, whether it has experts or an MLP."""

    model_type: ClassVar[str] = "qwen3_moe"
    gguf: ClassVar[GGUFNames | None] = GGUFNames(
        "qwen3moe",
        {GGUF_ROUTER: "mlp.gate", **GGUF_ATTENTION, **GGUF_NORMS_BEFORE, **GGUF_QK_NORMS},
        experts=GGUF_EXPERTS,
        settings={
            "num_experts": ".expert_count",
            "num_experts_per_tok": ".expert_used_count",
            "moe_intermediate_size": ".expert_feed_forward_length",
        },
        implied={".expert_gating_func": GGUF_SOFTMAX},
        needless=(".expert_weights_norm",),
        derived=lambda _: {"norm_topk_prob": True},  # llama.cpp always does this
    )

    windows: Windows
    sparse: tuple[bool, ...]
    experts: ExpertSizes
    routing: Routing
    attention_bias: bool

    @classmethod
    def read(cls, config: Configuration) -> Self:
        require_activation(config.hidden_act, "silu")
        require_full_rotary(config)
        count, step, dense = config.num_experts, config.decoder_sparse_step, set(config.mlp_only_layers)
        sparse = tuple(
            count > 0 and index not in dense and (index + 1) % step == 0 for index in range(config.num_hidden_layers)
        )
        return cls(
            windows=same_window(config, config.sliding_window),
            sparse=sparse,
            experts=ExpertSizes(count, config.num_experts_per_tok, config.moe_intermediate_size, sum(sparse)),
            routing=Routing(config.num_experts_per_tok, renormalized=config.norm_topk_prob),
            attention_bias=config.attention_bias,
        )

    def build(self, build: ModelBuilder) -> Decoder:
        return build.decoder(self.layer)

    def layer(self, build: ModelBuilder, prefix: str, index: int) -> SparseLayer:
        qkv = build.qkv(prefix + "self_attn.", bias=self.attention_bias)
        output = build.attention_output(prefix + "self_attn.", bias=self.attention_bias)
        params = AttentionParams(window=self.windows[index])
        return SparseLayer(
            attention_norm=build.add_norm(prefix + "input_layernorm", before=qkv),
            attention=build.attention(qkv, output, build.rotary, params, qk_norm=build.qk_norm(prefix + "self_attn.")),
            feed_forward=self._mixture(build, prefix) if self.sparse[index] else build.dense_block(prefix),
        )

    def _mixture(self, build: ModelBuilder, prefix: str) -> SparseBlock:
        names = ExpertNames(prefix + "mlp.experts.", stacked=prefix + "mlp.experts.")
        return SparseBlock(
            norm=build.plain_norm(prefix + "post_attention_layernorm"),
            router=build.router(prefix + "mlp.gate", self.experts.count, self.routing),
            experts=build.experts(names, self.experts),
        )
