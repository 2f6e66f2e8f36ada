"""Qwen3 with mixtures of experts: as Qwen3, with experts in place of most layers' MLP."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self

from thothy_ai.engine.models.experts import ExpertNames, ExpertSizes
from thothy_ai.engine.models.family import (
    GGUF_ATTENTION,
    GGUF_EXPERTS,
    GGUF_NORMS_BEFORE,
    GGUF_QK_NORMS,
    GGUF_ROUTER,
    GGUFNames,
    Windows,
    require_activation,
    require_full_rotary,
)
from thothy_ai.engine.models.layers.attention import Attention
from thothy_ai.engine.models.layers.experts import SparseBlock, SparseLayer
from thothy_ai.kernels.experts import Routing
from thothy_ai.kernels.paged import AttentionParams

if TYPE_CHECKING:
    from thothy_ai.engine.checkpoint.configuration import Configuration
    from thothy_ai.engine.models.builder import ModelBuilder
    from thothy_ai.engine.models.decoder import Decoder


@dataclass(frozen=True, slots=True)
class Qwen3Moe:
    """Which layers have experts, of which sizes, and how tokens choose them; whether attention has biases."""

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
        derived=lambda _: {"norm_topk_prob": True},  # llama.cpp computes so, whatever the file says
    )

    sparse: tuple[bool, ...]
    experts: ExpertSizes
    routing: Routing
    attention_bias: bool
    windows: Windows

    @classmethod
    def read(cls, config: Configuration) -> Self:
        """From a model's configuration."""
        require_activation(config.hidden_act, "silu")
        require_full_rotary(config)
        count, step, dense = config.num_experts, config.decoder_sparse_step, set(config.mlp_only_layers)
        sparse = tuple(
            count > 0 and index not in dense and (index + 1) % step == 0 for index in range(config.num_hidden_layers)
        )
        return cls(
            sparse=sparse,
            experts=ExpertSizes(count, config.num_experts_per_tok, config.moe_intermediate_size, sum(sparse)),
            routing=Routing(config.num_experts_per_tok, renormalized=config.norm_topk_prob),
            attention_bias=config.attention_bias,
            windows=(config.sliding_window,),
        )

    def build(self, build: ModelBuilder) -> Decoder:
        """The decoder."""
        return build.decoder(
            self._layer(build, f"model.layers.{index}.", sparse) for index, sparse in enumerate(self.sparse)
        )

    def _layer(self, build: ModelBuilder, prefix: str, sparse: bool) -> SparseLayer:
        config, heads = build.shape, prefix + "self_attn."
        qkv = build.qkv(heads, bias=self.attention_bias)
        output = build.attention_output(heads, bias=self.attention_bias)
        return SparseLayer(
            attention_norm=build.add_norm(prefix + "input_layernorm", before=qkv),
            attention=Attention(
                qkv,
                output,
                build.rotary,
                config.num_heads,
                config.head_dim,
                config.norm_eps,
                build.qk_norm(heads),
                params=AttentionParams(window=self.windows[0]).within(config.max_context),
            ),
            feed_forward=self._mixture(build, prefix) if sparse else build.dense_block(prefix),
        )

    def _mixture(self, build: ModelBuilder, prefix: str) -> SparseBlock:
        names = ExpertNames(prefix + "mlp.experts.", stacked=prefix + "mlp.experts.")
        return SparseBlock(
            norm=build.plain_norm(prefix + "post_attention_layernorm"),
            router=build.router(prefix + "mlp.gate", self.experts.count, self.routing),
            experts=build.experts(names, self.experts),
        )
