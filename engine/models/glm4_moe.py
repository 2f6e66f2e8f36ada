"""GLM-4.5 (Air): shared experts beside the chosen ones, plain MLPs in the first layers, scores by sigmoid.

A correction is added to the scores for the choice only (Wang et al., "Auxiliary-Loss-Free Load Balancing", 2024), and
experts may be chosen within groups (DeepSeek-AI, "DeepSeek-V3 Technical Report", 2024). The checkpoints' further
layers, which predict several tokens at a time, are left out, as in transformers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

from thothy_ai.engine.api.errors import UnsupportedModelError
from thothy_ai.engine.checkpoint.configuration import Configuration
from thothy_ai.engine.models.builder import ModelBuilder
from thothy_ai.engine.models.decoder import Decoder
from thothy_ai.engine.models.experts import ExpertNames, ExpertSizes
from thothy_ai.engine.models.family import Windows, require_activation, same_window, size_of
from thothy_ai.engine.models.gguf_names import (
    GGUF_ATTENTION,
    GGUF_EXPERTS,
    GGUF_GATED_MLP,
    GGUF_NORMS_AFTER_ATTENTION,
    GGUF_QK_NORMS,
    GGUF_ROUTER,
    GGUF_SIGMOID,
    GGUFNames,
)
from thothy_ai.engine.models.layers.experts import DenseBlock, SparseBlock, SparseLayer
from thothy_ai.engine.models.layers.mlp import SwiGLU
from thothy_ai.kernels.experts import Routing


@dataclass(frozen=True, slots=True)
class Glm4Moe:
    """The first `dense_layers` have an MLP, the others experts."""

    model_type: ClassVar[str] = "glm4_moe"
    gguf: ClassVar[GGUFNames | None] = GGUFNames(
        "glm4moe",
        {
            GGUF_ROUTER: "mlp.gate",
            "ffn_gate_shexp": "mlp.shared_experts.gate_proj",
            "ffn_up_shexp": "mlp.shared_experts.up_proj",
            "ffn_down_shexp": "mlp.shared_experts.down_proj",
            **GGUF_ATTENTION,
            **GGUF_QK_NORMS,
            **GGUF_GATED_MLP,
            **GGUF_NORMS_AFTER_ATTENTION,
        },
        whole={"exp_probs_b.bias": "mlp.gate.e_score_correction_bias"},
        partial_rotary=True,
        experts=GGUF_EXPERTS,
        settings={
            "n_routed_experts": ".expert_count",
            "num_experts_per_tok": ".expert_used_count",
            "n_shared_experts": ".expert_shared_count",
            "moe_intermediate_size": ".expert_feed_forward_length",
        },
        defaults={  # llama.cpp's defaults
            "first_k_dense_replace": (".leading_dense_block_count", 0),
            "routed_scaling_factor": (".expert_weights_scale", 1.0),
            "norm_topk_prob": (".expert_weights_norm", False),
            "n_group": (".expert_group_count", 1),
            "topk_group": (".expert_group_used_count", 1),
        },
        implied={".expert_gating_func": GGUF_SIGMOID},
        further_layers=".nextn_predict_layers",
        present={"use_qk_norm": "attn_q_norm.weight"},
        derived=lambda _: {"num_nextn_predict_layers": 0},
    )

    windows: Windows
    dense_layers: int
    experts: ExpertSizes
    routing: Routing
    attention_bias: bool
    qk_norm: bool

    @classmethod
    def read(cls, config: Configuration) -> Self:
        require_activation(config.hidden_act, "silu")
        layers, inner = config.num_hidden_layers, config.moe_intermediate_size
        dense = min(size_of(config, "first_k_dense_replace", least=0), layers)
        return cls(
            windows=same_window(config),
            dense_layers=dense,
            experts=ExpertSizes(
                config.n_routed_experts,
                config.num_experts_per_tok,
                inner,
                layers - dense,
                shared=inner * config.n_shared_experts,
            ),
            routing=grouped_routing(config),
            attention_bias=config.attention_bias,
            qk_norm=config.use_qk_norm,
        )

    def build(self, build: ModelBuilder) -> Decoder:
        return build.decoder(self.layer)

    def layer(self, build: ModelBuilder, prefix: str, index: int) -> SparseLayer:
        heads = prefix + "self_attn."
        qkv = build.qkv(heads, bias=self.attention_bias)
        output = build.attention_output(heads)
        norms = build.qk_norm(heads) if self.qk_norm else None
        if index < self.dense_layers:
            feed_forward: DenseBlock | SparseBlock = build.dense_block(prefix)
        else:
            mlp, shared, sizes = prefix + "mlp.", prefix + "mlp.shared_experts.", self.experts
            correction = mlp + "gate.e_score_correction_bias"
            feed_forward = SparseBlock(
                norm=build.plain_norm(prefix + "post_attention_layernorm"),
                router=build.router(mlp + "gate", sizes.count, self.routing, correction=correction),
                experts=build.experts(ExpertNames(mlp + "experts.", mlp + "experts."), sizes),
                shared=SwiGLU(build.gate_up(shared, inner=sizes.shared), build.down(shared, inner=sizes.shared)),
            )
        return SparseLayer(
            attention_norm=build.add_norm(prefix + "input_layernorm", before=qkv),
            attention=build.attention(qkv, output, build.rotary, qk_norm=norms),
            feed_forward=feed_forward,
        )


def grouped_routing(config: Configuration) -> Routing:
    """Routing by sigmoid, among the best groups; UnsupportedModelError if groups do not divide the experts."""
    experts, chosen = size_of(config, "n_routed_experts"), size_of(config, "num_experts_per_tok")
    groups, kept = size_of(config, "n_group"), size_of(config, "topk_group")
    size = experts // groups  # a group's score is the sum of its best two
    if experts % groups or kept > groups or chosen > size * kept or (groups > 1 and size < 2):
        raise UnsupportedModelError(f"{experts} experts in {groups} groups, of which {kept} are kept, do not divide")
    return Routing(
        chosen,
        scores="sigmoid",
        renormalized=config.norm_topk_prob,
        scale=config.routed_scaling_factor,
        groups=groups,
        kept_groups=kept,
    )
