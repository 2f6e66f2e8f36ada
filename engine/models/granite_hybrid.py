"""Granite 4: state spaces in most layers, attention without positions in the others, then experts beside a shared MLP.

Multipliers are as in Granite 3. Small models have attention in every layer, or no experts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import ClassVar, Self

import torch
from torch import Tensor

from thothy_ai.engine.checkpoint.configuration import Configuration
from thothy_ai.engine.models.builder import ModelBuilder
from thothy_ai.engine.models.decoder import Decoder
from thothy_ai.engine.models.experts import ExpertSizes, stack_experts
from thothy_ai.engine.models.family import layer_states
from thothy_ai.engine.models.gguf_names import GGUF_ATTENTION, GGUF_NORMS_BEFORE, GGUF_ROUTER, GGUFNames, Joined, Sizes
from thothy_ai.engine.models.gguf_state_space import (
    GGUF_SPACE_CHANGES,
    GGUF_SPACE_SETTINGS,
    gguf_space,
    gguf_space_gates,
)
from thothy_ai.engine.models.granite import GGUF_GRANITE_SETTINGS, Granite
from thothy_ai.engine.models.layers.attention import SelfAttention
from thothy_ai.engine.models.layers.experts import DenseBlock, SparseBlock, SparseLayer
from thothy_ai.engine.models.layers.mlp import SwiGLU
from thothy_ai.engine.models.layers.norm import FinalNorm
from thothy_ai.engine.models.layers.recurrence import StateSpace
from thothy_ai.engine.models.shape import States
from thothy_ai.engine.models.state_space import SpaceSizes
from thothy_ai.kernels.experts import ExpertWeights, Routing
from thothy_ai.kernels.paged import AttentionParams


def _gate_up(parts: Sequence[Tensor], _sizes: Sizes) -> Tensor:
    """[…, N, K] each, one below the other."""
    return torch.cat(list(parts), dim=-2)


@dataclass(frozen=True, slots=True)
class GraniteHybrid(Granite):
    """`shared` is the inner size of the shared MLP."""

    model_type: ClassVar[str] = "granitemoehybrid"
    gguf: ClassVar[GGUFNames | None] = GGUFNames(
        "granitehybrid",
        {
            GGUF_ROUTER: "block_sparse_moe.router.layer",
            "ffn_down_exps": "block_sparse_moe.output_linear",
            "ffn_down_shexp": "shared_mlp.output_linear",
            "ffn_down": "shared_mlp.output_linear",  # of models without experts
            **GGUF_NORMS_BEFORE,
            **GGUF_ATTENTION,
            **gguf_space("mamba"),
        },
        whole=gguf_space_gates("mamba"),
        joined={
            "block_sparse_moe.input_linear": Joined(_gate_up, (("ffn_gate_exps", "ffn_up_exps"),)),
            "shared_mlp.input_linear": Joined(_gate_up, (("ffn_gate_shexp", "ffn_up_shexp"), ("ffn_gate", "ffn_up"))),
        },
        interleaved=True,
        changed=GGUF_SPACE_CHANGES,
        by_layer=lambda heads: {"layer_types": ["full_attention" if each else "linear_attention" for each in heads]},
        settings={
            **GGUF_GRANITE_SETTINGS,
            **GGUF_SPACE_SETTINGS,
        },
        defaults={
            "num_local_experts": (".expert_count", 0),
            "num_experts_per_tok": (".expert_used_count", 0),
            "shared_intermediate_size": (".expert_shared_feed_forward_length", 0),
            "_rotates": (".rope.scaling.finetuned", False),
        },
        present={"mamba_conv_bias": "ssm_conv1d.bias"},
        derived=lambda fields: {
            "mamba_d_head": fields["_space_width"] // fields["mamba_n_heads"],
            "shared_intermediate_size": fields["shared_intermediate_size"] or fields["intermediate_size"],
            "position_embedding_type": "rope" if fields["_rotates"] else "nope",
        },
    )

    states: States
    space: SpaceSizes
    rotates_all: bool
    shared: int
    experts: ExpertSizes | None

    @classmethod
    def read(cls, config: Configuration) -> Self:
        space = SpaceSizes.read(config, output_bias=config.mamba_proj_bias, norm_groups=1)
        experts = None
        if config.num_local_experts:
            experts = ExpertSizes(
                config.num_local_experts,
                config.num_experts_per_tok,
                config.intermediate_size,
                config.num_hidden_layers,
                shared=config.shared_intermediate_size,
            )
        plain = Granite.read(Configuration(**vars(config), mlp_bias=False))
        return cls(
            **{field.name: getattr(plain, field.name) for field in fields(plain)},
            states=layer_states(config, "linear_attention", space.state),
            space=space,
            rotates_all=config.position_embedding_type == "rope",
            shared=config.shared_intermediate_size,
            experts=experts,
        )

    @property
    def mlp_sizes(self) -> tuple[int, ...]:
        return () if self.experts else (self.shared,) * len(self.states)

    def build(self, build: ModelBuilder) -> Decoder:
        return replace(Granite.build(self, build), ends_with_attention=self.states[-1] is None)

    def layer(self, build: ModelBuilder, prefix: str, index: int) -> SparseLayer:  # type: ignore[override]
        mixer: SelfAttention | StateSpace
        if self.states[index] is None:
            heads, bias = prefix + "self_attn.", self.attention_bias
            first, output = build.qkv(heads, bias=bias), build.attention_output(heads, bias=bias)
            rotary = build.rotary if self.rotates_all else None
            mixer = build.attention(first, output, rotary, AttentionParams(scale=self.attention_multiplier))
        else:
            mixer = self.space.build(build, prefix + "mamba.")
            first = mixer.projection
        hidden, mlp = build.shape.hidden_size, prefix + "shared_mlp."
        gate_up = build.linear({mlp + "input_linear": 2 * self.shared}, hidden)
        shared = SwiGLU(gate_up, build.linear({mlp + "output_linear": hidden}, self.shared))
        norm = prefix + "post_attention_layernorm"
        return SparseLayer(
            attention_norm=build.add_norm(prefix + "input_layernorm", first, self._eps(build)),
            attention=mixer,
            feed_forward=DenseBlock(build.add_norm(norm, gate_up, self._eps(build)), shared)
            if self.experts is None
            else self._mixture(build, prefix + "block_sparse_moe.", norm, shared, self.experts),
        )

    def _mixture(self, build: ModelBuilder, prefix: str, norm: str, shared: SwiGLU, sizes: ExpertSizes) -> SparseBlock:
        hidden, quantize = build.shape.hidden_size, build.expert_quantizer(sizes)
        gate_up, down = (
            stack_experts(build.source.tensor(f"{prefix}{name}.weight", sizes.count, *shape), sizes.count, quantize)
            for name, shape in (
                ("input_linear", (2 * sizes.inner, hidden)),
                ("output_linear", (hidden, sizes.inner)),
            )
        )
        return SparseBlock(
            norm=FinalNorm(build.vector(f"{norm}.weight", hidden), self._eps(build)),
            router=build.router(prefix + "router.layer", sizes.count, Routing(sizes.top_k)),
            experts=build.made_experts(ExpertWeights(gate_up, down)),
            shared=shared,
        )
