"""GPT-OSS: experts behind a clamped SwiGLU, sinks and biases in attention, a sliding window in every other layer.

Checkpoints keep experts stacked, gate and up rows interleaved: as published in MXFP4, which stays so in memory, or
plain and transposed, as transformers saves them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

from torch import Tensor

from thothy_ai.engine.api.errors import UnsupportedModelError
from thothy_ai.engine.checkpoint.configuration import Configuration
from thothy_ai.engine.models.builder import ModelBuilder
from thothy_ai.engine.models.cut import cut_gate_up
from thothy_ai.engine.models.decoder import Decoder
from thothy_ai.engine.models.experts import ExpertSizes, cut_mxfp4, read_mxfp4, stack_experts
from thothy_ai.engine.models.family import Windows, layer_windows, require_activation, require_full_rotary
from thothy_ai.engine.models.gguf_names import (
    GGUF_ATTENTION,
    GGUF_NORMS_AFTER_ATTENTION,
    GGUF_ROUTER,
    GGUF_SOFTMAX_OF_CHOSEN,
    GGUFNames,
)
from thothy_ai.engine.models.layers.experts import SparseBlock, SparseLayer
from thothy_ai.engine.models.tensors import concatenated
from thothy_ai.kernels.experts import CLAMPED_SWIGLU, ExpertMatrix, ExpertWeights, Mxfp4, Routing
from thothy_ai.kernels.paged import AttentionParams


@dataclass(frozen=True, slots=True)
class GptOss:
    model_type: ClassVar[str] = "gpt_oss"
    gguf: ClassVar[GGUFNames | None] = GGUFNames(
        "gpt-oss",
        {GGUF_ROUTER: "mlp.router", **GGUF_ATTENTION, **GGUF_NORMS_AFTER_ATTENTION},
        whole={"attn_sinks.weight": "self_attn.sinks"},
        stacks={
            "mlp.experts.gate_up_proj": ("ffn_gate_exps", "ffn_up_exps"),
            "mlp.experts.down_proj": ("ffn_down_exps",),
        },
        settings={
            "num_local_experts": ".expert_count",
            "num_experts_per_tok": ".expert_used_count",
            "intermediate_size": ".expert_feed_forward_length",
            "sliding_window": ".attention.sliding_window",
        },
        implied={".expert_gating_func": GGUF_SOFTMAX_OF_CHOSEN},
        windows_in_some=True,
        # Files lack this field of yarn; no checkpoint of the family rounds the range of its corrections.
        derived=lambda fields: {"rope_parameters": {**fields["rope_parameters"], "truncate": False}},
    )

    windows: Windows
    experts: ExpertSizes
    attention_bias: bool

    @classmethod
    def read(cls, config: Configuration) -> Self:
        require_activation(config.hidden_act, "silu")
        require_full_rotary(config)
        limit = getattr(config, "swiglu_limit", CLAMPED_SWIGLU.limit)
        if limit != CLAMPED_SWIGLU.limit:  # transformers ignores the configuration's limit
            raise UnsupportedModelError(f"a swiglu_limit of {limit} is not implemented")
        experts = ExpertSizes(
            config.num_local_experts, config.num_experts_per_tok, config.intermediate_size, config.num_hidden_layers
        )
        return cls(windows=layer_windows(config), experts=experts, attention_bias=config.attention_bias)

    def build(self, build: ModelBuilder) -> Decoder:
        return build.decoder(self.layer)

    def layer(self, build: ModelBuilder, prefix: str, index: int) -> SparseLayer:
        qkv = build.qkv(prefix + "self_attn.", bias=self.attention_bias)
        output = build.attention_output(prefix + "self_attn.", bias=self.attention_bias)
        params = AttentionParams(window=self.windows[index])
        sinks = build.share.of(build.source.tensor(prefix + "self_attn.sinks", build.shape.num_heads)).float()
        return SparseLayer(
            attention_norm=build.add_norm(prefix + "input_layernorm", before=qkv),
            attention=build.attention(qkv, output, build.rotary, params, sinks=build.held(sinks)),
            feed_forward=SparseBlock(
                norm=build.plain_norm(prefix + "post_attention_layernorm"),
                router=build.router(prefix + "mlp.router", self.experts.count, Routing(self.experts.top_k), bias=True),
                experts=build.made_experts(self._experts(build, prefix + "mlp.experts."), CLAMPED_SWIGLU),
            ),
        )

    def _experts(self, build: ModelBuilder, prefix: str) -> ExpertWeights:
        count, inner, hidden = self.experts.count, self.experts.inner, build.shape.hidden_size
        quantization, share = build.shape.quantization, build.share
        gate_up: ExpertMatrix
        down: ExpertMatrix
        if quantization is not None and quantization.mxfp4_experts:
            packed, stored_down = read_mxfp4(build.source, prefix, self.experts, hidden)
            ordered = Mxfp4(_gate_first(packed.blocks), _gate_first(packed.scales))
            gate_up, down = cut_mxfp4((ordered, stored_down), share)
        else:  # transposed in the checkpoint, and quantized here if other layers are
            quantize = build.expert_quantizer(self.experts)
            plain = build.source.tensor(prefix + "gate_up_proj", count, hidden, 2 * inner).transpose(1, 2)
            plain_down = build.source.tensor(prefix + "down_proj", count, inner, hidden).transpose(1, 2)
            gate_up = stack_experts(cut_gate_up(_gate_first(plain), share), count, quantize)
            down = stack_experts(plain_down[:, :, share.part(inner)], count, quantize)
        down_bias = build.source.tensor(prefix + "down_proj_bias", count, hidden)
        gate_up_bias = build.source.tensor(prefix + "gate_up_proj_bias", count, 2 * inner)
        return ExpertWeights(
            gate_up=gate_up,
            down=down,
            gate_up_bias=cut_gate_up(_gate_first(gate_up_bias), share),
            down_bias=None if share.rank else down_bias,  # on one rank only, since results are summed
        )


def _gate_first(rows: Tensor) -> Tensor:
    """[E, 2N, ...] with alternating rows of gate and up -> all rows of gate, then all rows of up."""
    return concatenated((rows[:, ::2], rows[:, 1::2]), dim=1)
