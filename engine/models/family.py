"""What a model family is: how it reads its configuration, names its tensors and builds its decoder."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self, runtime_checkable

from thothy_ai.engine.api.errors import ModelLoadError, UnsupportedModelError

if TYPE_CHECKING:
    from thothy_ai.engine.checkpoint.configuration import Configuration
    from thothy_ai.engine.models.builder import ModelBuilder
    from thothy_ai.engine.models.decoder import StepDecoder
    from thothy_ai.engine.models.experts import ExpertSizes


Windows = tuple[int | None, ...]  # how many tokens a query sees, itself included; None: all before it
NO_WINDOW: Windows = (None,)


@dataclass(frozen=True, slots=True)
class GGUFNames:
    """Where a GGUF file keeps a layer's tensors: `layer` maps "blk.N." names to transformers' "model.layers.N." names.

    `interleaved`: query and key rows are stored with their rotary pairs side by side, unlike transformers'.
    `optional_bias`: attention has biases in some models only, as its configuration says. `one_plus`: norms are stored
    as 1 + w. `partial_rotary`: a file may say that only some of a head's dimensions turn.

    `whole` does so with the ends of both names, where these are not the same. `experts` maps stacks of matrices to the
    names of each expert's, with its number for "{}". `stacks` are transformers' own stacks, and those of the file whose
    rows they have by turns.

    `settings` maps fields of transformers' configuration to the metadata that a file has them under (keys of its
    architecture), `defaults` those that may be absent, with what they are then; `derived` makes more fields of all that
    were read. `norm_eps` is such a pair, too. `implied` are values that the family takes for granted, if they are said.
    `further_layers` is the key of how many layers after the last one predict further tokens: these are left out.
    """

    architecture: str
    layer: Mapping[str, str]
    whole: Mapping[str, str] = field(default_factory=dict)
    interleaved: bool = False
    optional_bias: bool = True
    one_plus: bool = False
    partial_rotary: bool = False
    experts: Mapping[str, str] = field(default_factory=dict)
    stacks: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    defaults: Mapping[str, tuple[str, bool | int | float]] = field(default_factory=dict)
    implied: Mapping[str, int] = field(default_factory=dict)
    further_layers: str | None = None
    present: Mapping[str, str] = field(default_factory=dict)
    derived: Callable[[Mapping[str, Any]], Mapping[str, Any]] = dict
    norm_eps: tuple[str, str] = ("rms_norm_eps", ".attention.layer_norm_rms_epsilon")


GGUF_ATTENTION = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
}
GGUF_GATED_MLP = {"ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
GGUF_ROUTER = "ffn_gate_inp"
GGUF_EXPERTS = {
    "ffn_gate_exps": "mlp.experts.{}.gate_proj",
    "ffn_up_exps": "mlp.experts.{}.up_proj",
    "ffn_down_exps": "mlp.experts.{}.down_proj",
}
GGUF_FUSED_MLP = {"ffn_up": "mlp.gate_up_proj", "ffn_down": "mlp.down_proj"}
GGUF_QK_NORMS = {"attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm"}
GGUF_SANDWICH_NORMS = {
    "attn_norm": "input_layernorm",
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
GGUF_NORMS_AFTER_ATTENTION = {"attn_norm": "input_layernorm", "post_attention_norm": "post_attention_layernorm"}
GGUF_NORMS_BEFORE = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm"}


class Architecture(Protocol):
    """How a model computes, as its configuration says: a family of ours, or transformers' own model."""

    @property
    def windows(self) -> Windows:
        """Of each layer, or one for all of them."""
        ...

    def build(self, build: ModelBuilder) -> StepDecoder:
        """The decoder, its weights read in the order of the layers."""
        ...


class Family(Architecture, Protocol):
    """A family as one model configures it; each is a frozen dataclass of what its configuration leaves open."""

    model_type: ClassVar[str]  # of transformers
    gguf: ClassVar[GGUFNames | None]  # None: GGUF files of it are refused

    @classmethod
    def read(cls, config: Configuration) -> Self:
        """From a model's configuration; UnsupportedModelError for what would be computed wrongly."""
        ...


@runtime_checkable
class SparseFamily(Family, Protocol):
    """A family whose layers, or some of them, are mixtures of experts."""

    @property
    def experts(self) -> ExpertSizes:
        """Their sizes."""
        ...


def require_activation(activation: str, implemented: str) -> None:
    """UnsupportedModelError unless both are the same."""
    if activation != implemented:
        raise UnsupportedModelError(f"activation {activation!r} is not implemented")


def require_full_rotary(config: Configuration) -> None:
    """UnsupportedModelError if only a part of each head would turn, which transformers does not do in all families."""
    if config.rope_parameters.get("partial_rotary_factor", 1.0) != 1.0:
        raise UnsupportedModelError("partial rotary embedding is not implemented in this family")


def require_windows(config: Configuration, windows: Windows) -> None:
    """UnsupportedModelError for layers that see in another way, ModelLoadError for windows that see nothing."""
    others = {str(kind) for kind in getattr(config, "layer_types", None) or ()} - {
        "full_attention",
        "sliding_attention",
    }
    if others:
        raise UnsupportedModelError(f"layers of type {', '.join(sorted(others))} are not implemented")
    if any(window is not None and window < 1 for window in windows):
        raise ModelLoadError(f"sliding_window is {config.sliding_window!r}")


def layer_windows(config: Configuration) -> Windows:
    """The windows of a configuration that names each layer's attention."""
    return tuple(config.sliding_window if kind == "sliding_attention" else None for kind in config.layer_types)
