"""`ModelShape`: the sizes of a decoder and the forms of its weights, from which its layers are built."""

from __future__ import annotations

from dataclasses import dataclass

from thothy_ai.engine.models.quantized.quantization import Quantization
from thothy_ai.engine.models.rope import Rope
from thothy_ai.kernels.paged import KVHeads
from thothy_ai.kernels.states import StateShape


@dataclass(frozen=True, slots=True)
class LatentSizes:
    """Sizes of multi-head latent attention. A token keeps a latent of `rank` numbers, from which all heads' keys and
    values derive, and `rotary` numbers of a key that all heads share. A head's query has `plain` further numbers, and
    its value `value`. `query_rank`: the size of queries' compressed input; None: they take the hidden state.
    """

    rank: int
    rotary: int
    plain: int
    value: int
    query_rank: int | None

    @property
    def kept(self) -> KVHeads:
        return KVHeads(1, self.rank + self.rotary, self.rank)

    @property
    def query(self) -> int:
        """The size of a head's query as it is projected."""
        return self.plain + self.rotary


States = tuple[StateShape | None, ...]  # by layer: the state it keeps per row; None: keys and values


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """`local_rope` is for layers with a sliding window, if they rotate by other frequencies than `rope`. `states` is
    empty if no layer is recurrent.

    `kv_heads`: each layer's KV heads; empty if all have `num_kv_heads` of `head_dim`. `kv_sources`: for each layer, the
    index of the layer whose keys and values it reads; empty if each reads its own. `latent`: the latents of all layers,
    which then have one KV head of that size; None: no latents.
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
    latent: LatentSizes | None = None

    @property
    def usual_heads(self) -> KVHeads:
        """The keys and values of a layer without special sizes."""
        return KVHeads(self.num_kv_heads, self.head_dim) if self.latent is None else self.latent.kept

    @property
    def attended(self) -> tuple[KVHeads | None, ...]:
        """The keys and values that each layer attends to; None for recurrent layers."""
        heads = self.kv_heads or (self.usual_heads,) * self.num_layers
        states = self.states or (None,) * self.num_layers
        return tuple(each if state is None else None for each, state in zip(heads, states, strict=True))

    @property
    def other_heads(self) -> tuple[KVHeads, ...]:
        """The keys and values other than `usual_heads` that some layer attends to."""
        kinds = dict.fromkeys(heads for heads in self.attended if heads is not None)
        return tuple(heads for heads in kinds if heads != self.usual_heads)

    @property
    def kept(self) -> tuple[KVHeads | None, ...]:
        """The keys and values that each layer keeps of a token; None if it keeps a state, or reads another layer's."""
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
        """The width of a token's projections into and out of attention and recurrences, summed over all layers."""
        if self.latent is not None:
            return self.num_layers * self._latent_width(self.latent)
        queries = (2 * self.num_heads * heads.size for heads in self.attended if heads is not None)
        pairs = (2 * heads.number * heads.size for heads in self.kept if heads is not None)
        recurrent = (state.channels + 2 * state.heads * state.values for state in self.states if state is not None)
        return sum(queries) + sum(pairs) + sum(recurrent)

    def _latent_width(self, latent: LatentSizes) -> int:
        """The `mixer_width` of one layer with latents; projections from smaller inputs count in proportion to the
        hidden size.
        """
        expanded = latent.rank * (latent.plain + latent.value)
        width = latent.kept.size + self.num_heads * latent.value
        if latent.query_rank is None:
            width += self.num_heads * latent.query
        else:
            width += latent.query_rank
            expanded += latent.query_rank * latent.query
        return width + self.num_heads * expanded // self.hidden_size
