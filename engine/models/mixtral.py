"""Mixtral: as Mistral, with experts in place of every layer's MLP."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

from thothy_ai.engine.checkpoint.configuration import Configuration
from thothy_ai.engine.models.builder import ModelBuilder
from thothy_ai.engine.models.decoder import Decoder
from thothy_ai.engine.models.experts import ExpertNames, ExpertSizes
from thothy_ai.engine.models.family import Windows, require_activation, require_full_rotary, same_window
from thothy_ai.engine.models.gguf_names import GGUF_ATTENTION, GGUF_NORMS_BEFORE, GGUF_ROUTER, GGUF_SOFTMAX, GGUFNames
from thothy_ai.engine.models.layers.experts import SparseBlock, SparseLayer
from thothy_ai.kernels.experts import Routing
from thothy_ai.kernels.paged import AttentionParams


@dataclass(frozen=True, slots=True)
class Mixtral:
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
        implied={".expert_gating_func": GGUF_SOFTMAX},
        settings={"num_local_experts": ".expert_count", "num_experts_per_tok": ".expert_used_count"},
    )

    windows: Windows
    experts: ExpertSizes

    @classmethod
    def read(cls, config: Configuration) -> Self:
        require_activation(config.hidden_act, "silu")
        require_full_rotary(config)
        experts = ExpertSizes(
            config.num_local_experts, config.num_experts_per_tok, config.intermediate_size, config.num_hidden_layers
        )
        return cls(windows=same_window(config, config.sliding_window), experts=experts)

    def build(self, build: ModelBuilder) -> Decoder:
        return build.decoder(self.layer)

    def layer(self, build: ModelBuilder, prefix: str, index: int) -> SparseLayer:
        qkv = build.qkv(prefix + "self_attn.")
        output = build.attention_output(prefix + "self_attn.")
        # Published checkpoints name the block `block_sparse_moe`; with stacked experts it is `mlp`.
        stacked = prefix + "mlp.experts."
        block = prefix + ("mlp." if build.source.holds(stacked + "gate_up_proj") else "block_sparse_moe.")
        names = ExpertNames(block + "experts.", stacked, gate="w1", up="w3", down="w2")
        return SparseLayer(
            attention_norm=build.add_norm(prefix + "input_layernorm", before=qkv),
            attention=build.attention(qkv, output, build.rotary, AttentionParams(window=self.windows[index])),
            feed_forward=SparseBlock(
                norm=build.plain_norm(prefix + "post_attention_layernorm"),
                router=build.router(block + "gate", self.experts.count, Routing(self.experts.top_k)),
                experts=build.experts(names, self.experts),
            ),
        )
