"""Gemma 4 (text): as Gemma 3, with larger heads in layers without a window, whose values may be their keys.

In those layers, only a part of each head rotates. Values are normalized, scores are not scaled, and a layer ends by
multiplying the residual stream. Small models give each layer an embedding of its own, and their last layers read the
keys and values of earlier ones; one has experts beside the MLP. Norms multiply by w.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from thothy_ai.engine.api.errors import ModelLoadError, UnsupportedModelError
from thothy_ai.engine.checkpoint.configuration import Configuration
from thothy_ai.engine.models.builder import ModelBuilder
from thothy_ai.engine.models.decoder import Decoder
from thothy_ai.engine.models.experts import ExpertNames, ExpertSizes
from thothy_ai.engine.models.family import Windows, layer_windows, require_activation, require_full_rotary
from thothy_ai.engine.models.gguf_names import (
    GGUF_ATTENTION,
    GGUF_GATED_MLP,
    GGUF_QK_NORMS,
    GGUF_ROUTER,
    GGUF_SANDWICH_NORMS,
    GGUFNames,
)
from thothy_ai.engine.models.layers.attention import LayerContext, SelfAttention
from thothy_ai.engine.models.layers.embedding import LinearHead, SoftCappedHead
from thothy_ai.engine.models.layers.experts import ExpertRouter
from thothy_ai.engine.models.layers.layer_inputs import InputGate, LayerInputs
from thothy_ai.engine.models.layers.mlp import GeGLU
from thothy_ai.engine.models.layers.norm import AddRMSNorm, RMSNorm
from thothy_ai.kernels.experts import GELU_TANH, Experts, Routing
from thothy_ai.kernels.operations import Operations
from thothy_ai.kernels.paged import AttentionParams, KVHeads
from thothy_ai.kernels.rotary import QKNorm


def _derived(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """Fields that a GGUF file has layer by layer, or not at all."""
    kinds = fields.get("layer_types") or ()
    layers, shared = fields["num_hidden_layers"], fields["num_kv_shared_layers"]
    if not 0 <= shared < layers:
        raise ModelLoadError(f".attention.shared_kv_layers is {shared}, of {layers} layers")
    own = layers - shared
    windowed, full = (
        {heads for heads, found in zip(fields["_kv_heads"], kinds, strict=True) if found == kind} if kinds else set()
        for kind in ("sliding_attention", "full_attention")
    )
    first, *later = dict.fromkeys(fields["_inner"])
    if len(windowed) != 1 or len(full) != 1 or later not in ([], [2 * first]):
        raise ModelLoadError("layers of one type must be alike, and both types must be there: .head_count_kv, "
                             ".feed_forward_length and .sliding_window_pattern say otherwise")  # fmt: skip
    values = (has for has, kind in zip(fields["_with_values"][:own], kinds, strict=False) if kind == _FULL)
    local = {"rope_type": "default", "rope_theta": fields["_local_theta"]}
    return {
        "head_dim": fields["_head_dim_of_windows"],
        "global_head_dim": fields["head_dim"],
        "num_key_value_heads": windowed.pop(),
        "num_global_key_value_heads": full.pop(),
        "attention_k_eq_v": not all(values),
        "use_double_wide_mlp": bool(later),
        "enable_moe_block": fields["num_experts"] > 0,
        "vocab_size_per_layer_input": fields["vocab_size"],
        "final_logit_softcapping": fields["_logit_cap"] or None,
        "rope_parameters": {"full_attention": fields["rope_parameters"], "sliding_attention": local},
    }


_FULL = "full_attention"
_BY_LAYER = {"head_dim", "num_key_value_heads"}  # fields that a layer may have of its own


@dataclass(frozen=True, slots=True)
class SideExperts:
    """Experts beside an MLP: each has norms of its own. `scales` [E] multiply the experts' weights."""

    after_mlp: RMSNorm
    router_norm: RMSNorm
    router: ExpertRouter
    scales: Tensor
    before: RMSNorm
    experts: Experts
    after: RMSNorm

    def __call__(self, made: Tensor, x: Tensor, operations: Operations) -> Tensor:
        """The sum of the MLP's result [R, hidden] and the chosen experts' results for x [R, hidden]."""
        chosen, weights = self.router(self.router_norm(x, operations), operations)
        weights = weights * self.scales[chosen]
        others = self.experts(self.before(x, operations), chosen, weights)
        return self.after_mlp(made, operations).add_(self.after(others, operations))


@dataclass(frozen=True, slots=True)
class Gemma4Layer:
    """x += norm(attention(norm(x))); x += norm(mlp(norm(x))), perhaps with experts beside it; perhaps x += an
    update from the layer's input and x; x *= scale [1].
    """

    before_attention: AddRMSNorm
    attention: SelfAttention
    after_attention: RMSNorm
    before_mlp: AddRMSNorm
    mlp: GeGLU
    experts: SideExperts | None
    after_mlp: RMSNorm
    input: InputGate | None
    scale: Tensor

    def attend(self, update: Tensor, residual: Tensor, context: LayerContext) -> Tensor:
        """Attend, and append the layer's input, if any, to the results."""
        attended = self.attention(self.before_attention(update, residual, context.operations), context)
        return attended if context.given is None else torch.cat((attended, context.given), dim=1)

    def finish(self, attended: Tensor, residual: Tensor, operations: Operations) -> Tensor:
        width = self.attention.num_heads * self.attention.head_dim
        attended, given = attended[:, :width], attended[:, width:]
        update = self.after_attention(self.attention.project(attended, operations), operations)
        made = self.mlp(self.before_mlp(update, residual, operations), operations)
        if self.experts is not None:
            made = self.experts(made, residual, operations)
        update = self.after_mlp(made, operations)
        if self.input is not None:
            update = self.input(residual.add_(update), given, operations)
        residual.mul_(self.scale)
        return update.mul_(self.scale)


@dataclass(frozen=True, slots=True)
class Gemma4:
    """`logit_cap` None: logits are not capped. `keys_only`: layers without a window have no values but their keys.

    `given`: the size of layers' inputs, 0 if there are none; `given_vocab`: the number of tokens that have inputs.
    """

    model_type: ClassVar[str] = "gemma4_text"
    gguf: ClassVar[GGUFNames | None] = GGUFNames(
        "gemma4",
        {
            **GGUF_SANDWICH_NORMS,
            **GGUF_QK_NORMS,
            **GGUF_ATTENTION,
            **GGUF_GATED_MLP,
            "post_ffw_norm_1": "post_feedforward_layernorm_1",
            "pre_ffw_norm_2": "pre_feedforward_layernorm_2",
            "post_ffw_norm_2": "post_feedforward_layernorm_2",
            GGUF_ROUTER: "router.proj",
            "inp_gate": "per_layer_input_gate",
            "proj": "per_layer_projection",
            "post_norm": "post_per_layer_input_norm",
        },
        whole={
            f"{GGUF_ROUTER}.scale": "router.scale",
            "ffn_down_exps.scale": "router.per_expert_scale",
            "ffn_gate_up_exps.weight": "experts.gate_up_proj",
            "ffn_down_exps.weight": "experts.down_proj",
            "layer_output_scale.weight": "layer_scalar",
        },
        top={
            "output_norm": "model.norm",
            "per_layer_token_embd": "model.embed_tokens_per_layer",
            "per_layer_model_proj": "model.per_layer_model_projection",
            "per_layer_proj_norm": "model.per_layer_projection_norm",
        },
        unpacked=("per_layer_token_embd", "per_layer_model_proj"),
        settings={"sliding_window": ".attention.sliding_window", "_head_dim_of_windows": ".attention.key_length_swa"},
        defaults={
            "_local_theta": (".rope.freq_base_swa", 10_000.0),
            "_logit_cap": (".final_logit_softcapping", 0.0),
            "num_kv_shared_layers": (".attention.shared_kv_layers", 0),
            "hidden_size_per_layer_input": (".embedding_length_per_layer_input", 0),
            "num_experts": (".expert_count", 0),
            "top_k_experts": (".expert_used_count", 0),
            "moe_intermediate_size": (".expert_feed_forward_length", 0),
        },
        windows_in_some=True,
        uneven=True,
        sharing=".attention.shared_kv_layers",
        proportional=True,
        derived=_derived,
    )

    windows: Windows
    kv_heads: tuple[KVHeads, ...]
    kv_sources: tuple[int, ...]
    keys_only: bool
    attention_bias: bool
    logit_cap: float | None
    given: int
    given_vocab: int
    mlp_sizes: tuple[int, ...]
    experts: ExpertSizes | None

    @classmethod
    def read(cls, config: Configuration) -> Self:
        require_activation(config.hidden_activation, "gelu_pytorch_tanh")
        for kind in set(config.layer_types):
            rope = config.rope_parameters[kind]
            if rope.get("rope_type") != "proportional":
                require_full_rotary(config, rope)
        if config.use_bidirectional_attention not in {None, "vision"}:  # only for images, which requests lack
            raise UnsupportedModelError("bidirectional attention is not implemented")
        if config.hidden_size_per_layer_input and config.vocab_size_per_layer_input < config.vocab_size:
            raise ModelLoadError(
                f"vocab_size_per_layer_input is {config.vocab_size_per_layer_input}, vocab_size {config.vocab_size}"
            )
        layers, windows, sources = config.num_hidden_layers, layer_windows(config), tuple(_sources(config))
        inner, experts = config.intermediate_size, None
        if config.enable_moe_block:
            experts = ExpertSizes(config.num_experts, config.top_k_experts, config.moe_intermediate_size, layers)
        wider = 2 if config.use_double_wide_mlp else 1
        return cls(
            windows=windows,
            kv_heads=tuple(_heads(config, windows)),
            kv_sources=sources,
            keys_only=config.attention_k_eq_v,
            attention_bias=config.attention_bias,
            logit_cap=config.final_logit_softcapping,
            given=config.hidden_size_per_layer_input or 0,
            given_vocab=config.vocab_size_per_layer_input,
            mlp_sizes=tuple(inner * (1 if source == index else wider) for index, source in enumerate(sources)),
            experts=experts,
        )

    def build(self, build: ModelBuilder) -> Decoder:
        def rounded(factor: float) -> float:  # to the model's type, as transformers does
            return float(torch.tensor(factor).to(build.embedding.dtype))

        hidden, given = build.shape.hidden_size, len(self.windows) * self.given
        inputs = None
        if given:
            norm = build.vector("model.per_layer_projection_norm.weight", self.given)
            inputs = LayerInputs(
                table=build.vector("model.embed_tokens_per_layer.weight", self.given_vocab, given),
                factor=rounded(self.given**0.5),
                projection=build.vector("model.per_layer_model_projection.weight", given, hidden),
                norm=RMSNorm(norm, build.shape.norm_eps),
            )
        layers, head = build.layers(self.layer), build.head()
        return Decoder(
            embedding=build.token_embedding(rounded(hidden**0.5)),
            layers=layers,
            norm=build.plain_norm("model.norm"),
            head=LinearHead(head) if self.logit_cap is None else SoftCappedHead(head, self.logit_cap),
            ends_with_attention=inputs is None,
            inputs=inputs,
        )

    def layer(self, build: ModelBuilder, prefix: str, index: int) -> Gemma4Layer:
        attention = self._attention(build, prefix + "self_attn.", index)
        mlp, inner, hidden = prefix + "mlp.", self.mlp_sizes[index], build.shape.hidden_size
        gate_up = build.gate_up(mlp, inner=inner)
        given = None
        if self.given:
            given = InputGate(
                gate=build.linear({prefix + "per_layer_input_gate": self.given}, hidden),
                output=build.linear({prefix + "per_layer_projection": hidden}, self.given),
                norm=build.rms_norm(prefix + "post_per_layer_input_norm"),
            )
        return Gemma4Layer(
            before_attention=build.add_norm(prefix + "input_layernorm", before=attention.qkv),
            attention=attention,
            after_attention=build.rms_norm(prefix + "post_attention_layernorm"),
            before_mlp=build.add_norm(prefix + "pre_feedforward_layernorm", before=gate_up),
            mlp=GeGLU(gate_up, build.down(mlp, inner=inner)),
            experts=None if self.experts is None else self._experts(build, prefix, self.experts),
            after_mlp=build.rms_norm(prefix + "post_feedforward_layernorm"),
            input=given,
            scale=build.vector(prefix + "layer_scalar", 1),
        )

    def _attention(self, build: ModelBuilder, prefix: str, index: int) -> SelfAttention:
        """A layer's attention, with queries only if keys and values are another layer's."""
        shape, heads, window, bias = build.shape, self.kv_heads[index], self.windows[index], self.attention_bias
        own = self.kv_sources[index] == index
        queries, pairs = shape.num_heads * heads.size, heads.number * heads.size
        outputs = {prefix + "q_proj": queries}
        query = key = build.vector(prefix + "q_norm.weight", heads.size)
        if own:
            outputs[prefix + "k_proj"] = pairs
            key = build.vector(prefix + "k_norm.weight", heads.size)
            if window is not None or not self.keys_only:
                outputs[prefix + "v_proj"] = pairs
        return SelfAttention(
            qkv=build.column_parallel(outputs, shape.hidden_size, heads.size, bias=bias),
            output=build.row_parallel({prefix + "o_proj": shape.hidden_size}, queries, bias=bias),
            rotary=build.rotary if window is None else build.local_rotary,
            num_heads=build.num_heads,
            head_dim=heads.size,
            norm_eps=shape.norm_eps,
            qk_norm=QKNorm(query, key, value=torch.ones_like(query)),
            params=AttentionParams(scale=1.0, window=window).within(shape.max_context),
        )

    def _experts(self, build: ModelBuilder, prefix: str, sizes: ExpertSizes) -> SideExperts:
        hidden, router = build.shape.hidden_size, prefix + "router."
        scale = build.held(build.float32(router + "scale", hidden).mul_(hidden**-0.5))
        return SideExperts(
            after_mlp=build.rms_norm(prefix + "post_feedforward_layernorm_1"),
            router_norm=RMSNorm(scale, build.shape.norm_eps),
            router=build.router(router + "proj", sizes.count, Routing(sizes.top_k)),
            scales=build.held(build.float32(router + "per_expert_scale", sizes.count)),
            before=build.rms_norm(prefix + "pre_feedforward_layernorm_2"),
            experts=build.experts(ExpertNames(prefix + "experts.", prefix + "experts."), sizes, GELU_TANH),
            after=build.rms_norm(prefix + "post_feedforward_layernorm_2"),
        )


def _heads(config: Configuration, windows: Windows) -> Iterator[KVHeads]:
    """Each layer's keys and values; layers with a window are alike, and so are layers without one."""
    by_layer = {int(index): own for index, own in getattr(config, "per_layer_config", {}).items()}
    alike = dict[bool, KVHeads]()
    for index, window in enumerate(windows):
        own = by_layer.get(index, {})
        if others := own.keys() - _BY_LAYER:
            raise UnsupportedModelError(f"layer {index} has {min(others)} of its own, which is not implemented")
        size, number = own.get("head_dim", config.head_dim), own.get("num_key_value_heads", config.num_key_value_heads)
        if any(not isinstance(each, int) or each < 1 for each in (size, number)) or config.num_attention_heads % number:
            raise ModelLoadError(f"{config.num_attention_heads} heads over {number} KV heads of {size} do not divide")
        heads = KVHeads(number, size)
        if alike.setdefault(window is None, heads) != heads:
            raise UnsupportedModelError(f"layer {index} has other heads than layers like it, which is not implemented")
        yield heads


def _sources(config: Configuration) -> Iterator[int]:
    """For each layer, the index of the layer whose keys and values it reads: for the last layers, an earlier one."""
    own = config.num_hidden_layers - config.num_kv_shared_layers
    last = {kind: index for index, kind in enumerate(config.layer_types[: max(0, own)])}
    for index, kind in enumerate(config.layer_types):
        if index >= own and kind not in last:
            raise ModelLoadError(
                f"num_kv_shared_layers is {config.num_kv_shared_layers}: before those, no layer is of type {kind!r}"
            )
        yield index if index < own else last[kind]
