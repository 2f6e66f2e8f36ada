"""Qwen3-Next: three layers of a gated delta net to one of gated attention, then experts beside a gated shared one.

Norms multiply by 1 + w, except in the delta net. Checkpoints interleave each head's queries and gates in one
projection, and the delta net's projection has each key head's rows together; both are reordered at load.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Self

import torch
from torch import Tensor

from thothy_ai.engine.api.errors import ModelLoadError
from thothy_ai.engine.checkpoint.configuration import Configuration
from thothy_ai.engine.models.builder import ModelBuilder
from thothy_ai.engine.models.decoder import Decoder
from thothy_ai.engine.models.experts import ExpertSizes
from thothy_ai.engine.models.family import Windows, layer_states, require_activation, same_window
from thothy_ai.engine.models.gemma2 import one_plus
from thothy_ai.engine.models.gguf_delta_net import (
    GGUF_DELTA_CHANGES,
    GGUF_DELTA_DEFAULTS,
    GGUF_DELTA_GATES,
    GGUF_DELTA_NET,
    GGUF_DELTA_SETTINGS,
    GGUF_SHARED_EXPERT,
    GGUF_SHARED_SETTINGS,
    by_key_head,
    delta_fields,
)
from thothy_ai.engine.models.gguf_names import (
    GGUF_ATTENTION,
    GGUF_EXPERTS,
    GGUF_NORMS_AFTER_ATTENTION,
    GGUF_QK_NORMS,
    GGUF_SOFTMAX,
    GGUFNames,
    Joined,
)
from thothy_ai.engine.models.layers.attention import GatedSelfAttention
from thothy_ai.engine.models.layers.embedding import LinearHead
from thothy_ai.engine.models.layers.experts import DenseBlock, JoinedBlock, SparseBlock, SparseLayer
from thothy_ai.engine.models.layers.linear import Linear
from thothy_ai.engine.models.layers.mlp import SwiGLU
from thothy_ai.engine.models.layers.norm import AddRMSNorm, FinalNorm
from thothy_ai.engine.models.layers.recurrence import GatedDeltaNet
from thothy_ai.engine.models.shape import States
from thothy_ai.engine.models.shared_expert import gated_mixture
from thothy_ai.kernels.experts import Routing
from thothy_ai.kernels.rotary import QKNorm
from thothy_ai.kernels.states import DeltaGates, StateShape


class DeltaSizes(NamedTuple):
    """The delta net's numbers of heads, sizes of a key and a value, and the tokens that the convolution sees."""

    key_heads: int
    heads: int
    keys: int
    values: int
    width: int

    @classmethod
    def of(cls, config: Configuration) -> DeltaSizes:
        """ModelLoadError for invalid sizes, or sizes that do not divide."""
        names = ("num_key_heads", "num_value_heads", "key_head_dim", "value_head_dim", "conv_kernel_dim")
        for name in names:
            value = getattr(config, f"linear_{name}")
            if not isinstance(value, int) or isinstance(value, bool) or value < 1 + (name == "conv_kernel_dim"):
                raise ModelLoadError(f"linear_{name} is {value!r}")
        sizes = cls(*(getattr(config, f"linear_{name}") for name in names))
        if sizes.heads % sizes.key_heads:
            raise ModelLoadError(f"{sizes.heads} value heads over {sizes.key_heads} key heads do not divide")
        return sizes

    @property
    def mixed(self) -> int:
        """The channels of the convolution: queries, keys and values."""
        return 2 * self.key_heads * self.keys + self.heads * self.values

    @property
    def state(self) -> StateShape:
        return StateShape(self.mixed, self.width - 1, self.heads, self.values, self.keys)


@dataclass(frozen=True, slots=True)
class Qwen3Next:
    """`sparse`: for each layer, whether it has experts or an MLP. Qwen3.5 inherits all but the names of the delta net's
    projections.
    """

    model_type: ClassVar[str] = "qwen3_next"
    gguf: ClassVar[GGUFNames | None] = GGUFNames(
        "qwen3next",
        {**GGUF_DELTA_NET, "ssm_ba": "linear_attn.in_proj_ba", **GGUF_ATTENTION, **GGUF_QK_NORMS, **GGUF_SHARED_EXPERT,
         **GGUF_NORMS_AFTER_ATTENTION},
        whole=GGUF_DELTA_GATES,
        experts=GGUF_EXPERTS,
        joined={"linear_attn.in_proj_qkvz": Joined(by_key_head, (("attn_qkv", "attn_gate"),))},
        one_plus=True,
        changed=GGUF_DELTA_CHANGES,
        unpacked=("ffn_gate_inp_shexp",),
        partial_rotary=True,
        settings={**GGUF_DELTA_SETTINGS, **GGUF_SHARED_SETTINGS},
        defaults=GGUF_DELTA_DEFAULTS,
        implied={".expert_gating_func": GGUF_SOFTMAX},
        derived=delta_fields,
    )  # fmt: skip

    windows: Windows
    states: States
    delta: DeltaSizes
    attention_bias: bool
    sparse: tuple[bool, ...]
    experts: ExpertSizes | None
    routing: Routing | None

    @classmethod
    def read(cls, config: Configuration) -> Self:
        step, dense = config.decoder_sparse_step, set(config.mlp_only_layers)
        layers = range(config.num_hidden_layers)
        sparse = tuple(config.num_experts > 0 and at not in dense and (at + 1) % step == 0 for at in layers)
        return cls._read(config, sparse, renormalized=config.norm_topk_prob)

    @classmethod
    def _read(cls, config: Configuration, sparse: tuple[bool, ...], *, renormalized: bool = True) -> Self:
        require_activation(config.hidden_act, "silu")
        delta, experts, routing = DeltaSizes.of(config), None, None
        if any(sparse):
            experts = ExpertSizes(
                config.num_experts,
                config.num_experts_per_tok,
                config.moe_intermediate_size,
                sum(sparse),
                shared=config.shared_expert_intermediate_size,
            )
            routing = Routing(experts.top_k, renormalized=renormalized)
        return cls(
            windows=same_window(config),
            states=layer_states(config, "linear_attention", delta.state),
            delta=delta,
            attention_bias=config.attention_bias,
            sparse=sparse,
            experts=experts,
            routing=routing,
        )

    def build(self, build: ModelBuilder) -> Decoder:
        layers = build.layers(self.layer)
        norm = FinalNorm(one_plus(build, "model.norm", build.shape.hidden_size), build.shape.norm_eps)
        return Decoder(
            embedding=build.token_embedding(),
            layers=layers,
            norm=norm,
            head=LinearHead(build.head()),
            ends_with_attention=False,
        )

    def layer(self, build: ModelBuilder, prefix: str, index: int) -> SparseLayer:
        mixer: GatedDeltaNet | GatedSelfAttention
        if self.states[index] is None:
            mixer = self._attention(build, prefix + "self_attn.")
            first = mixer.attention.qkv
        else:
            mixer = self._delta_net(build, prefix + "linear_attn.")
            first = mixer.projection
        if self.sparse[index]:
            feed_forward: SparseBlock | JoinedBlock | DenseBlock = self._mixture(build, prefix)
        else:
            gate_up = build.gate_up(prefix + "mlp.")
            norm = _add_norm(build, prefix + "post_attention_layernorm", before=gate_up)
            feed_forward = DenseBlock(norm, SwiGLU(gate_up, build.down(prefix + "mlp.")))
        return SparseLayer(
            attention_norm=_add_norm(build, prefix + "input_layernorm", before=first),
            attention=mixer,
            feed_forward=feed_forward,
        )

    def _attention(self, build: ModelBuilder, prefix: str) -> GatedSelfAttention:
        shape, bias = build.shape, self.attention_bias
        queries, pairs = shape.num_heads * shape.head_dim, shape.num_kv_heads * shape.head_dim
        gates_first = torch.arange(2 * queries).view(shape.num_heads, 2, shape.head_dim).flip(1).transpose(0, 1)
        qkv = build.linear(
            {prefix + "q_proj": 2 * queries, prefix + "k_proj": pairs, prefix + "v_proj": pairs},
            shape.hidden_size,
            bias=bias,
            orders={prefix + "q_proj": gates_first.flatten().to(build.embedding.device)},
        )
        norms = QKNorm(*(one_plus(build, f"{prefix}{name}_norm", shape.head_dim) for name in "qk"))
        output = build.attention_output(prefix, bias=bias)
        return GatedSelfAttention(build.attention(qkv, output, build.rotary, qk_norm=norms))

    def _delta_net(self, build: ModelBuilder, prefix: str) -> GatedDeltaNet:
        delta = self.delta
        return GatedDeltaNet(
            projection=self._projection(build, prefix),
            convolution=build.taps(prefix + "conv1d", delta.mixed, delta.width),
            gates=DeltaGates(build.rates(prefix + "A_log", delta.heads), build.exact(prefix + "dt_bias", delta.heads)),
            norm=build.vector(prefix + "norm.weight", delta.values),
            norm_eps=build.shape.norm_eps,
            output=build.linear({prefix + "out_proj": build.shape.hidden_size}, delta.heads * delta.values),
        )

    def _projection(self, build: ModelBuilder, prefix: str) -> Linear:
        """The delta net's input projection, grouped by kind: queries, keys, values, gates, and inputs of both gates."""
        delta, device = self.delta, build.embedding.device
        shared = delta.heads // delta.key_heads  # value heads per key head
        by_key_head = {
            prefix + "in_proj_qkvz": (delta.keys, delta.keys, shared * delta.values, shared * delta.values),
            prefix + "in_proj_ba": (shared, shared),
        }
        orders = {name: _by_kind(sizes, delta.key_heads).to(device) for name, sizes in by_key_head.items()}
        outputs = {name: len(order) for name, order in orders.items()}
        return build.linear(outputs, build.shape.hidden_size, orders=orders)

    def _mixture(self, build: ModelBuilder, prefix: str) -> SparseBlock | JoinedBlock:
        assert self.experts is not None
        assert self.routing is not None
        weight = one_plus(build, prefix + "post_attention_layernorm", build.shape.hidden_size)
        norm = FinalNorm(weight, build.shape.norm_eps)
        return gated_mixture(build, prefix + "mlp.", norm, self.experts, self.routing)


def _add_norm(build: ModelBuilder, name: str, before: Linear) -> AddRMSNorm:
    return AddRMSNorm(one_plus(build, name, build.shape.hidden_size), build.shape.norm_eps, before.takes_fp8)


def _by_kind(sizes: tuple[int, ...], groups: int) -> Tensor:
    """Indices of rows in order of their kind; a checkpoint has, for each of `groups`, `sizes` rows of the kinds."""
    rows = torch.arange(groups * sum(sizes)).view(groups, -1)
    return torch.cat([kind.flatten() for kind in rows.split(sizes, dim=1)])
