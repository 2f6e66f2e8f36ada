"""What a model family is: how it reads its configuration, names its tensors and builds its decoder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol, Self

from thothy_ai.engine.errors import UnsupportedModelError

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

    from thothy_ai.engine.models.builder import ModelBuilder
    from thothy_ai.engine.models.decoder import StepDecoder


Windows = tuple[int | None, ...]  # how many tokens a query sees, itself included; None: all before it
NO_WINDOW: Windows = (None,)


@dataclass(frozen=True, slots=True)
class GGUFNames:
    """Where a GGUF file keeps a layer's tensors: `layer` maps "blk.N." names to transformers' "model.layers.N." names.

    `interleaved`: query and key rows are stored with their rotary pairs side by side. `optional_bias`: attention has
    biases in some models only, as its configuration says.
    """

    architecture: str
    layer: Mapping[str, str]
    interleaved: bool = False
    optional_bias: bool = True


GGUF_ATTENTION = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
}
GGUF_GATED_MLP = {"ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}


class Family(Protocol):
    """A family as one model configures it; each is a frozen dataclass of what its configuration leaves open."""

    model_type: ClassVar[str]  # of transformers
    gguf: ClassVar[GGUFNames | None]  # None: GGUF files of it are refused

    @classmethod
    def read(cls, config: PreTrainedConfig) -> Self:
        """From transformers' configuration; UnsupportedModelError for what would be computed wrongly."""
        ...

    @property
    def max_context(self) -> int | None:
        """Tokens beyond which the family computes something that this engine does not; None: no such limit."""
        ...

    def build(self, build: ModelBuilder) -> StepDecoder:
        """The decoder, its weights read in the order of the layers."""
        ...


def require_activation(activation: str, implemented: str) -> None:
    """UnsupportedModelError unless both are the same."""
    if activation != implemented:
        raise UnsupportedModelError(f"activation {activation!r} is not implemented")


def require_full_rotary(config: PreTrainedConfig) -> None:
    """UnsupportedModelError if only a part of each head would turn, which transformers does not do in all families."""
    if config.rope_parameters.get("partial_rotary_factor", 1.0) != 1.0:
        raise UnsupportedModelError("partial rotary embedding is not implemented in this family")


def layer_window(config: PreTrainedConfig) -> int | None:
    """The window of a configuration that names each layer's attention: None unless some layer has one."""
    window: int | None = config.sliding_window
    return window if "sliding_attention" in config.layer_types else None


def layer_windows(config: PreTrainedConfig) -> Windows:
    """The windows of a configuration that names each layer's attention."""
    return tuple(config.sliding_window if kind == "sliding_attention" else None for kind in config.layer_types)
