"""`ModelShape`: the sizes of a decoder and the forms of its weights, which its layers are built by."""

from __future__ import annotations

from dataclasses import dataclass

from thothy_ai.engine.models.quantized.quantization import Quantization
from thothy_ai.engine.models.rope import Rope
from thothy_ai.kernels.states import StateShape

States = tuple[StateShape | None, ...]  # of each layer: what it keeps of a row; None: keys and values


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """`local_rope` is for layers with a sliding window, where they rotate by other frequencies than `rope`. `states` is
    empty where no layer is recurrent.
    """

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    norm_eps: float
    rope: Rope
    local_rope: Rope | None = None
    tied_embeddings: bool
    max_context: int
    quantization: Quantization | None = None
    states: States = ()

    @property
    def recurrent(self) -> bool:
        """Whether some layer keeps a state."""
        return any(self.states)

    @property
    def mixer_width(self) -> int:
        """How many numbers a token's projections into and out of attention and recurrences have, in all layers."""
        attention = self.attention_layers * (2 * self.num_heads + 2 * self.num_kv_heads) * self.head_dim
        recurrent = (state.channels + 2 * state.heads * state.values for state in self.states if state is not None)
        return attention + sum(recurrent)

    @property
    def attention_layers(self) -> int:
        """The layers that keep keys and values."""
        return self.num_layers - sum(state is not None for state in self.states)
