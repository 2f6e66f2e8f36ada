"""Llama 4 (text): chunked attention with rotary positions, full attention without them, experts of weighted inputs.

A chunk sees itself alone; every fourth layer sees everything, with queries that grow with their position. In Scout,
queries and keys of layers with positions are normalized. Maverick has experts in every second layer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from thothy_ai.engine.api.errors import ModelLoadError, UnsupportedModelError
from thothy_ai.engine.checkpoint.configuration import Configuration
from thothy_ai.engine.models.builder import ModelBuilder
from thothy_ai.engine.models.decoder import Decoder
from thothy_ai.engine.models.experts import ExpertNames, ExpertSizes
from thothy_ai.engine.models.family import Windows, require_activation, require_full_rotary
from thothy_ai.engine.models.gguf_names import GGUF_ATTENTION, GGUF_NORMS_BEFORE, GGUF_ROUTER, GGUF_SIGMOID, GGUFNames
from thothy_ai.engine.models.layers.attention import SelfAttention
from thothy_ai.engine.models.layers.experts import DenseBlock, InputWeightedExperts, SparseBlock, SparseLayer
from thothy_ai.engine.models.layers.mlp import SwiGLU
from thothy_ai.engine.models.query_growth import NO_GROWTH, QueryGrowth
from thothy_ai.kernels.experts import Routing
from thothy_ai.kernels.paged import AttentionParams
from thothy_ai.kernels.rotary import QKNorm

_GGUF_CHUNK = 8192  # default of files, and the step at which queries grow
_WITHOUT_NORMS = 128  # number of experts of the published model without norms of queries and keys


def _derived(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """Fields that a GGUF file lacks, by llama.cpp's rules. With a chunk size of 0, all layers see everything."""
    layers, chunk = fields["num_hidden_layers"], fields["_chunk"]
    if chunk not in {0, _GGUF_CHUNK}:
        raise UnsupportedModelError(f"chunks of {chunk} tokens, where llama.cpp computes with {_GGUF_CHUNK}")
    everything = {"no_rope_layers": [1] * layers, "layer_types": ["full_attention"] * layers}
    return {
        "attention_chunk_size": _GGUF_CHUNK,
        "floor_scale": _GGUF_CHUNK,
        "use_qk_norm": fields["num_local_experts"] != _WITHOUT_NORMS,
        **({} if chunk else everything),
    }


@dataclass(frozen=True, slots=True)
class Llama4:
    """`rotates` and `sparse`: for each layer, whether it has rotary positions, and whether it has experts. `dense`: the
    inner size of the other layers' MLPs. `growth`: of queries in layers without positions.
    """

    model_type: ClassVar[str] = "llama4_text"
    chunked: ClassVar[bool] = True
    gguf: ClassVar[GGUFNames | None] = GGUFNames(
        "llama4",
        {
            GGUF_ROUTER: "feed_forward.router",
            "ffn_gate_shexp": "feed_forward.shared_expert.gate_proj",
            "ffn_up_shexp": "feed_forward.shared_expert.up_proj",
            "ffn_down_shexp": "feed_forward.shared_expert.down_proj",
            "ffn_gate": "feed_forward.gate_proj",
            "ffn_up": "feed_forward.up_proj",
            "ffn_down": "feed_forward.down_proj",
            **GGUF_ATTENTION,
            **GGUF_NORMS_BEFORE,
        },
        experts={
            "ffn_gate_exps": "feed_forward.experts.{}.gate_proj",
            "ffn_up_exps": "feed_forward.experts.{}.up_proj",
            "ffn_down_exps": "feed_forward.experts.{}.down_proj",
        },
        settings={
            "num_local_experts": ".expert_count",
            "num_experts_per_tok": ".expert_used_count",
            "intermediate_size": ".expert_feed_forward_length",
            "intermediate_size_mlp": ".feed_forward_length",
            "interleave_moe_layer_step": ".interleave_moe_layer_step",
        },
        defaults={"_chunk": (".attention.sliding_window", _GGUF_CHUNK)},
        implied={".expert_gating_func": GGUF_SIGMOID},
        derived=_derived,
    )

    windows: Windows
    rotates: tuple[bool, ...]
    sparse: tuple[bool, ...]
    experts: ExpertSizes | None
    dense: int
    attention_bias: bool
    qk_norm: bool
    growth: QueryGrowth

    @classmethod
    def read(cls, config: Configuration) -> Self:
        require_activation(config.hidden_act, "silu")
        require_full_rotary(config)
        _require_possible(config)
        layers, chunk, inner = config.num_hidden_layers, config.attention_chunk_size, config.intermediate_size
        sparse, experts = tuple(index in config.moe_layers for index in range(layers)), None
        if any(sparse):
            chosen = config.num_experts_per_tok
            experts = ExpertSizes(config.num_local_experts, chosen, inner, sum(sparse), shared=inner)
        return cls(
            windows=tuple(chunk if kind == "chunked_attention" else None for kind in config.layer_types),
            rotates=tuple(bool(each) for each in config.no_rope_layers[:layers]),  # 1: the layer rotates
            sparse=sparse,
            experts=experts,
            dense=config.intermediate_size_mlp,
            attention_bias=config.attention_bias,
            qk_norm=config.use_qk_norm,
            growth=QueryGrowth(config.attn_scale, config.floor_scale, 1)
            if config.attn_temperature_tuning
            else NO_GROWTH,
        )

    @property
    def mlp_sizes(self) -> tuple[int, ...]:
        return (self.dense,) * self.sparse.count(False)

    def build(self, build: ModelBuilder) -> Decoder:
        return build.decoder(partial(self.layer, self.growth.held(build)))

    def layer(self, scales: Tensor | None, build: ModelBuilder, prefix: str, index: int) -> SparseLayer:
        attention = self._attention(build, prefix + "self_attn.", index, scales)
        return SparseLayer(
            attention_norm=build.add_norm(prefix + "input_layernorm", before=attention.qkv),
            attention=attention,
            feed_forward=(
                self._dense_block(build, prefix)
                if self.experts is None or not self.sparse[index]
                else self._mixture(build, prefix, self.experts)
            ),
        )

    def _attention(self, build: ModelBuilder, prefix: str, index: int, scales: Tensor | None) -> SelfAttention:
        rotates, window, norms, shape = self.rotates[index], self.windows[index], None, build.shape
        if self.qk_norm and rotates:  # before rotation, which preserves lengths
            unit = torch.ones(shape.head_dim, dtype=build.embedding.dtype, device=build.embedding.device)
            norms = QKNorm(unit, unit)
        return SelfAttention(
            qkv=build.interleaved_qkv(prefix, bias=self.attention_bias),
            output=build.attention_output(prefix, bias=self.attention_bias),
            rotary=build.rotary if rotates else None,
            num_heads=build.num_heads,
            head_dim=shape.head_dim,
            norm_eps=shape.norm_eps,
            qk_norm=norms,
            params=AttentionParams(window=window, chunked=window is not None).within(shape.max_context),
            query_scales=None if rotates else scales,
        )

    def _dense_block(self, build: ModelBuilder, prefix: str) -> DenseBlock:
        mlp = prefix + "feed_forward."
        gate_up = build.gate_up(mlp, inner=self.dense)
        norm = build.add_norm(prefix + "post_attention_layernorm", before=gate_up)
        return DenseBlock(norm, SwiGLU(gate_up, build.down(mlp, inner=self.dense)))

    def _mixture(self, build: ModelBuilder, prefix: str, sizes: ExpertSizes) -> SparseBlock:
        mlp, shared = prefix + "feed_forward.", prefix + "feed_forward.shared_expert."
        names, routing = mlp + "experts.", Routing(sizes.top_k, scores="sigmoid", renormalized=False)
        return SparseBlock(
            norm=build.plain_norm(prefix + "post_attention_layernorm"),
            router=build.router(mlp + "router", sizes.count, routing),
            experts=InputWeightedExperts(build.experts(ExpertNames(names, names), sizes)),
            shared=SwiGLU(build.gate_up(shared, inner=sizes.shared), build.down(shared, inner=sizes.shared)),
        )


def _require_possible(config: Configuration) -> None:
    """ModelLoadError for sizes below 1, and for lists that do not fit the layers."""
    layers = config.num_hidden_layers
    for name in ("attention_chunk_size", "floor_scale", "intermediate_size_mlp"):
        value = getattr(config, name)
        if (value is None and "chunked_attention" in config.layer_types) or (value is not None and value < 1):
            raise ModelLoadError(f"{name} is {value!r}")
    if len(config.no_rope_layers) < layers:
        raise ModelLoadError(f"no_rope_layers names {len(config.no_rope_layers)} layers of {layers}")
    if others := sorted(set(config.moe_layers) - set(range(layers))):
        raise ModelLoadError(f"moe_layers names layer {others[0]}, of {layers} layers")
