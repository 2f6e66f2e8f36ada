"""`ModelShape`: the sizes of a decoder and the forms of its weights, which its layers are built by."""

from __future__ import annotations

from dataclasses import dataclass

from thothy_ai.engine.models.quantized.quantization import Quantization
from thothy_ai.engine.models.rope import Rope
from thothy_ai.kernels.paged import KVHeads
from thothy_ai.kernels.states import StateShape

States = tuple[StateShape | None, ...]  # of each layer: what it keeps of a row; None: keys and values


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """`local_rope` is for layers with a sliding window, where they rotate by other frequencies than `rope`. `states` is
    empty where no layer is recurrent.

    `kv_heads`: those of each layer; empty where all have `num_kv_heads` of `head_dim`. `kv_sources`: of each layer, the
    index of the one whose keys and values it reads; empty where each reads its own.
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
    kv_heads: tuple[KVHeads, ...] = ()
    kv_sources: tuple[int, ...] = ()

    @property
    def attended(self) -> tuple[KVHeads | None, ...]:
        """The keys and values that each layer attends to; None: it is recurrent."""
        heads = self.kv_heads or (KVHeads(self.num_kv_heads, self.head_dim),) * self.num_layers
        states = self.states or (None,) * self.num_layers
        return tuple(each if state is None else None for each, state in zip(heads, states, strict=True))

    @property
    def kept(self) -> tuple[KVHeads | None, ...]:
        """The keys and values that each layer keeps of a token; None: a state instead, or another layer's are read."""
        sources = self.kv_sources or range(self.num_layers)
        pairs = enumerate(zip(self.attended, sources, strict=True))
        return tuple(heads if source == index else None for index, (heads, source) in pairs)

    @property
    def widest_head(self) -> int:
        return max(heads.size for heads in self.attended if heads is not None)

    @property
    def recurrent(self) -> bool:
        """Whether some layer keeps a state."""
        return any(self.states)

    @property
    def mixer_width(self) -> int:
        """How many numbers a token's projections into and out of attention and recurrences have, in all layers."""
        queries = (2 * self.num_heads * heads.size for heads in self.attended if heads is not None)
        pairs = (2 * heads.number * heads.size for heads in self.kept if heads is not None)
        recurrent = (state.channels + 2 * state.heads * state.values for state in self.states if state is not None)
        return sum(queries) + sum(pairs) + sum(recurrent)
