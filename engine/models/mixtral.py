"""Mixtral: as Mistral, with experts in place of every layer's MLP."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self

from thothy_ai.engine.models.experts import ExpertNames, ExpertSizes
from thothy_ai.engine.models.family import (
    GGUF_ATTENTION,
    GGUF_NORMS_BEFORE,
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

_NAMES = ("w1", "w3", "w2")  # gate, up, down


@dataclass(frozen=True, slots=True)
class Mixtral:
    """The experts' sizes, and how far a token sees."""

    model_type: ClassVar[str] = "mixtral"
    gguf: ClassVar[GGUFNames | None] = GGUFNames(
        "llama",
        {GGUF_ROUTER: "block_sparse_moe.gate", **GGUF_ATTENTION, **GGUF_NORMS_BEFORE},
        interleaved=True,
        optional_bias=False,
        experts={
            "ffn_gate_exps": "block_sparse_moe.experts.{}.w1",
            "ffn_up_exps": "block_sparse_moe.experts.{}.w3",
            "ffn_down_exps": "block_sparse_moe.experts.{}.w2",
        },
        settings={"num_local_experts": ".expert_count", "num_experts_per_tok": ".expert_used_count"},
    )

    experts: ExpertSizes
    windows: Windows

    @classmethod
    def read(cls, config: Configuration) -> Self:
        """From a model's configuration."""
        require_activation(config.hidden_act, "silu")
        require_full_rotary(config)
        sizes = ExpertSizes(
            config.num_local_experts, config.num_experts_per_tok, config.intermediate_size, config.num_hidden_layers
        )
        return cls(experts=sizes, windows=(config.sliding_window,))

    def build(self, build: ModelBuilder) -> Decoder:
        """The decoder."""
        return build.decoder(self._layer(build, f"model.layers.{index}.") for index in range(build.shape.num_layers))

    def _layer(self, build: ModelBuilder, prefix: str) -> SparseLayer:
        config, heads = build.shape, prefix + "self_attn."
        qkv = build.qkv(heads)
        output = build.attention_output(heads)
        return SparseLayer(
            attention_norm=build.add_norm(prefix + "input_layernorm", before=qkv),
            attention=Attention(
                qkv,
                output,
                build.rotary,
                config.num_heads,
                config.head_dim,
                config.norm_eps,
                params=AttentionParams(window=self.windows[0]).within(config.max_context),
            ),
            feed_forward=self._mixture(build, prefix),
        )

    def _mixture(self, build: ModelBuilder, prefix: str) -> SparseBlock:
        """Published checkpoints call it `block_sparse_moe`; with stacked experts it is `mlp`."""
        stacked = prefix + "mlp.experts."
        block = prefix + ("mlp." if build.holds(f"{stacked}gate_up_proj") else "block_sparse_moe.")
        return SparseBlock(
            norm=build.plain_norm(prefix + "post_attention_layernorm"),
            router=build.router(f"{block}gate", self.experts.count, Routing(self.experts.top_k)),
            experts=build.experts(ExpertNames(f"{block}experts.", stacked, *_NAMES), self.experts),
        )
