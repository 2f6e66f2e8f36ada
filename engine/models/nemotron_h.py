"""Nemotron-H and Nemotron 3: state spaces, some attention without positions, and MLPs or experts between them.

In a checkpoint, each is a separate layer with one norm; here, an MLP or experts belong to the layer before them. They
have no gates: max(x, 0) ** 2. Experts can work on a projection of tokens. transformers keeps a prompt's step sizes
above `time_step_min`, but not those of later tokens; the model's authors have no such limit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from torch import Tensor

from thothy_ai.engine.api.errors import ModelLoadError, UnsupportedModelError
from thothy_ai.engine.checkpoint.configuration import Configuration
from thothy_ai.engine.models.builder import ModelBuilder
from thothy_ai.engine.models.decoder import Decoder
from thothy_ai.engine.models.experts import ExpertNames, ExpertSizes
from thothy_ai.engine.models.family import Windows, require_activation, unknown_layer
from thothy_ai.engine.models.gguf_names import GGUF_ROUTER, GGUF_SIGMOID, GGUFNames
from thothy_ai.engine.models.gguf_state_space import GGUF_SPACE_CHANGES, gguf_space, gguf_space_gates
from thothy_ai.engine.models.glm4_moe import grouped_routing
from thothy_ai.engine.models.layers.attention import LayerContext, SelfAttention, TokenMixer
from thothy_ai.engine.models.layers.embedding import LinearHead
from thothy_ai.engine.models.layers.experts import DenseBlock, LatentExperts, SparseBlock
from thothy_ai.engine.models.layers.mlp import SquaredReLUMLP
from thothy_ai.engine.models.layers.norm import AddRMSNorm
from thothy_ai.engine.models.layers.recurrence import StateSpace
from thothy_ai.engine.models.shape import States
from thothy_ai.engine.models.state_space import SpaceSizes, require_no_limit
from thothy_ai.kernels.experts import SQUARED_RELU, Experts, Routing
from thothy_ai.kernels.operations import Operations

_MIXERS = ("linear_attention", "full_attention")
FeedForward = Callable[[Tensor, Tensor, Operations], Tensor]


def _kinds(heads: Sequence[int], inner: Sequence[int]) -> Mapping[str, Any]:
    """The kinds of a GGUF file's layers: those with KV heads attend, those with an inner size are MLPs or experts."""
    pairs = zip(heads, inner, strict=True)
    kinds = ["full_attention" if head else "mlp" if size else "linear_attention" for head, size in pairs]
    return {"layers_block_type": kinds}


def _nemotron_fields(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """Fields that a GGUF file gives in another form: if there are experts, layers with an inner size have experts."""
    kinds = fields["layers_block_type"]
    if fields["n_routed_experts"]:
        kinds = ["moe" if kind == "mlp" else kind for kind in kinds]
    return {
        "layers_block_type": kinds,
        "mamba_head_dim": fields["mamba_head_dim"] // fields["mamba_num_heads"],
    }


@dataclass(frozen=True, slots=True)
class MixerLayer:
    """x += mixer(norm(x)), then x += feed_forward(norm(x)) for each of them. Sums are left to the next norm."""

    norm: AddRMSNorm
    mixer: TokenMixer
    feed_forwards: tuple[FeedForward, ...]

    def attend(self, update: Tensor, residual: Tensor, context: LayerContext) -> Tensor:
        return self.mixer(self.norm(update, residual, context.operations), context)

    def finish(self, mixed: Tensor, residual: Tensor, operations: Operations) -> Tensor:
        update = self.mixer.project(mixed, operations)
        for feed_forward in self.feed_forwards:
            update = feed_forward(update, residual, operations)
        return update


@dataclass(frozen=True, slots=True)
class NemotronH:
    """`kinds`: the types of a checkpoint's layers. `mixers`: the indices of layers that have states or attend.

    `latent`: the size of experts' inputs, if it differs from the model's.
    """

    model_type: ClassVar[str] = "nemotron_h"
    gguf: ClassVar[GGUFNames | None] = GGUFNames(
        "nemotron_h_moe",
        {
            "attn_norm": "norm",
            "attn_q": "mixer.q_proj",
            "attn_k": "mixer.k_proj",
            "attn_v": "mixer.v_proj",
            "attn_output": "mixer.o_proj",
            "ffn_up": "mixer.up_proj",
            "ffn_down": "mixer.down_proj",
            GGUF_ROUTER: "mixer.gate",
            "ffn_up_shexp": "mixer.shared_experts.up_proj",
            "ffn_down_shexp": "mixer.shared_experts.down_proj",
            "ffn_latent_down": "mixer.fc1_latent_proj",
            "ffn_latent_up": "mixer.fc2_latent_proj",
            **gguf_space("mixer"),
        },
        whole={"exp_probs_b.bias": "mixer.gate.e_score_correction_bias", **gguf_space_gates("mixer")},
        experts={"ffn_up_exps": "mixer.experts.{}.up_proj", "ffn_down_exps": "mixer.experts.{}.down_proj"},
        changed=GGUF_SPACE_CHANGES,
        aliases=("nemotron_h",),
        listed=(".attention.head_count_kv", ".feed_forward_length"),
        by_layer=_kinds,
        norm_eps=("layer_norm_epsilon", ".attention.layer_norm_rms_epsilon"),
        settings={
            "conv_kernel": ".ssm.conv_kernel",
            "ssm_state_size": ".ssm.state_size",
            "n_groups": ".ssm.group_count",
            "mamba_num_heads": ".ssm.time_step_rank",
            "mamba_head_dim": ".ssm.inner_size",  # of all heads
        },
        defaults={
            "n_routed_experts": (".expert_count", 0),
            "num_experts_per_tok": (".expert_used_count", 0),
            "moe_intermediate_size": (".expert_feed_forward_length", 0),
            "moe_shared_expert_intermediate_size": (".expert_shared_feed_forward_length", 0),
            "moe_latent_size": (".moe_latent_size", 0),
            "routed_scaling_factor": (".expert_weights_scale", 1.0),
            "norm_topk_prob": (".expert_weights_norm", False),
            "n_group": (".expert_group_count", 1),
            "topk_group": (".expert_group_used_count", 1),
        },
        implied={".expert_gating_func": GGUF_SIGMOID},
        needless=(".expert_shared_count",),
        present={"use_conv_bias": "ssm_conv1d.bias", "use_bias": "ssm_in.bias"},
        derived=_nemotron_fields,
    )

    kinds: tuple[str, ...]
    space: SpaceSizes
    mlp_bias: bool
    inner: int
    experts: ExpertSizes | None
    routing: Routing | None
    latent: int | None

    @classmethod
    def read(cls, config: Configuration) -> Self:
        require_activation(config.mlp_hidden_act, "relu2")
        require_activation(config.mamba_hidden_act, "silu")
        require_no_limit(config.time_step_limit)
        kinds = tuple(config.layers_block_type)
        for index, kind in enumerate(kinds):
            if kind not in {*_MIXERS, "mlp", "moe"}:
                raise unknown_layer(index, kind)
        if kinds[0] not in _MIXERS:
            raise UnsupportedModelError(f"layer 0 is of type {kinds[0]!r}, which is not implemented before any mixer")
        if config.sliding_window is not None:
            raise UnsupportedModelError("a sliding_window is not implemented in this family")
        experts = routing = None
        if sparse := kinds.count("moe"):
            experts = ExpertSizes(
                config.n_routed_experts,
                config.num_experts_per_tok,
                config.moe_intermediate_size,
                sparse,
                shared=config.moe_shared_expert_intermediate_size,
            )
            routing = grouped_routing(config)
            if experts.inner % 16:
                raise UnsupportedModelError(f"experts of an inner size of {experts.inner}: only multiples of 16 are")
        latent = config.moe_latent_size or None
        if latent is not None and (not isinstance(latent, int) or latent < 1 or latent % 8):
            raise ModelLoadError(f"moe_latent_size is {latent!r}: only multiples of 8 are implemented")
        return cls(
            kinds=kinds,
            space=SpaceSizes(
                heads=config.mamba_num_heads,
                values=config.mamba_head_dim,
                groups=config.n_groups,
                keys=config.ssm_state_size,
                width=config.conv_kernel,
                bias=config.use_bias,
                output_bias=config.use_bias,
                convolution_bias=config.use_conv_bias,
                norm_groups=config.n_groups,
            ),
            mlp_bias=config.mlp_bias,
            inner=config.intermediate_size,
            experts=experts,
            routing=routing,
            latent=latent,
        )

    @property
    def mixers(self) -> tuple[int, ...]:
        return tuple(index for index, kind in enumerate(self.kinds) if kind in _MIXERS)

    @property
    def windows(self) -> Windows:
        return (None,) * len(self.mixers)

    @property
    def states(self) -> States:
        return tuple(self.space.state if self.kinds[index] == "linear_attention" else None for index in self.mixers)

    @property
    def mlp_sizes(self) -> tuple[int, ...]:
        return (self.inner,) * self.kinds.count("mlp")

    def build(self, build: ModelBuilder) -> Decoder:
        return Decoder(
            embedding=build.token_embedding(),
            layers=build.layers(self.layer),
            norm=build.plain_norm("model.norm"),
            head=LinearHead(build.head()),
            ends_with_attention=self.states[-1] is None,
        )

    def layer(self, build: ModelBuilder, _prefix: str, index: int) -> MixerLayer:
        mixers = (*self.mixers, len(self.kinds))
        at, end = mixers[index : index + 2]
        prefix = f"model.layers.{at}."
        mixer: SelfAttention | StateSpace
        if self.kinds[at] == "full_attention":
            first, output = build.qkv(prefix + "mixer."), build.attention_output(prefix + "mixer.")
            mixer = build.attention(first, output, rotary=None)
        else:
            mixer = self.space.build(build, prefix + "mixer.")
            first = mixer.projection
        norm = build.add_norm(prefix + "norm", before=first)
        return MixerLayer(norm, mixer, tuple(self._feed_forward(build, place) for place in range(at + 1, end)))

    def _feed_forward(self, build: ModelBuilder, index: int) -> FeedForward:
        prefix = f"model.layers.{index}."
        if self.kinds[index] == "mlp":
            mlp = self._mlp(build, prefix + "mixer.", self.inner)
            return DenseBlock(build.add_norm(prefix + "norm", before=mlp.up), mlp)
        sizes, routing, mixer = self.experts, self.routing, prefix + "mixer."
        assert sizes is not None
        assert routing is not None
        correction = mixer + "gate.e_score_correction_bias"
        return SparseBlock(
            norm=build.plain_norm(prefix + "norm"),
            router=build.router(mixer + "gate", sizes.count, routing, correction=correction),
            experts=self._experts(build, mixer, sizes),
            shared=self._mlp(build, mixer + "shared_experts.", sizes.shared),
        )

    def _mlp(self, build: ModelBuilder, prefix: str, inner: int) -> SquaredReLUMLP:
        hidden, bias = build.shape.hidden_size, self.mlp_bias
        up = build.linear({prefix + "up_proj": inner}, hidden, bias=bias)
        return SquaredReLUMLP(up, build.linear({prefix + "down_proj": hidden}, inner, bias=bias))

    def _experts(self, build: ModelBuilder, prefix: str, sizes: ExpertSizes) -> Experts | LatentExperts:
        hidden, latent = build.shape.hidden_size, self.latent or build.shape.hidden_size
        names = ExpertNames(prefix + "experts.", prefix + "experts.", gate=None)
        experts = build.experts(names, sizes, SQUARED_RELU, hidden=latent)
        if self.latent is None:
            return experts
        return LatentExperts(
            build.linear({prefix + "fc1_latent_proj": latent}, hidden, bias=self.mlp_bias),
            experts,
            build.linear({prefix + "fc2_latent_proj": hidden}, latent, bias=self.mlp_bias),
        )
