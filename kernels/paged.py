"""What attention reads: one layer's paged KV cache, and the sequences of a step.

A cache is `[num_blocks, block_size, num_kv_heads, head_dim]`, once for keys and once for values. Block 0 is a dummy
that no sequence owns: padded rows write there. In multi-head latent attention (DeepSeek-AI, "DeepSeek-V2", 2024) all
heads read one key of a token, and its first numbers, the latent, are the value: only keys are kept.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor

_Place = TypeVar("_Place", int, Tensor)


class KVHeads(NamedTuple):
    """The keys that a layer keeps of a token, and as many values, each of `size` numbers; with `latent`, only keys,
    whose first `latent` numbers are the values.
    """

    number: int
    size: int
    latent: int = 0

    @property
    def value_size(self) -> int:
        return self.latent or self.size


@dataclass(frozen=True)
class AttentionShape:
    """The sizes that attention is built for: at most `max_rows` sequences with one token per step, and contexts of at
    most `max_context` tokens.

    `dtype` is the type of queries and results; the cache has the type `kv_dtype`, the same or fp8. `others` are the
    heads of layers without `num_kv_heads` heads of `head_dim`. `latent`: as in `KVHeads`.
    """

    max_rows: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    block_size: int
    max_context: int
    dtype: torch.dtype
    kv_dtype: torch.dtype
    device: torch.device
    others: tuple[KVHeads, ...] = ()
    latent: int = 0

    @property
    def heads_per_kv(self) -> int:
        """Query heads of one KV head."""
        return self.num_heads // self.num_kv_heads

    @property
    def value_dim(self) -> int:
        """The size of values, and of results."""
        return self.latent or self.head_dim

    @property
    def rest_dim(self) -> int:
        """Numbers of a key that are not part of its value; 0 if values are kept separately."""
        return self.head_dim - self.value_dim

    def by_heads(self) -> dict[KVHeads, AttentionShape]:
        """The shape of the layers with each kind of heads."""
        kinds = (KVHeads(self.num_kv_heads, self.head_dim, self.latent), *self.others)
        return {
            each: replace(self, num_kv_heads=each.number, head_dim=each.size, latent=each.latent, others=())
            for each in kinds
        }


@dataclass(frozen=True, slots=True)
class AttentionParams:
    """What attention computes in one layer. Compiled into kernels, so there should be few in a model.

    `scale`: what scores are multiplied by; None: 1 / sqrt(head_dim). `window`: how many tokens a query sees, itself
    included; None: all before it. `soft_cap`: scores become cap * tanh(score / cap) after that; None: they stay.
    `chunked`: the context is cut into chunks of `window` tokens, and a query sees its own chunk, up to itself.

    `slopes`: what is added to a head's score for each token that a key lies further on (ALiBi: Press et al., "Train
    short, test long", 2022); only `FlexAttention` computes them.
    """

    scale: float | None = None
    window: int | None = None
    soft_cap: float | None = None
    slopes: tuple[float, ...] | None = None
    chunked: bool = False

    def within(self, context: int) -> AttentionParams:
        """The parameters for contexts of at most `context` tokens; a window at least that long is dropped."""
        unlimited = self.window is not None and self.window >= context
        return replace(self, window=None, chunked=False) if unlimited else self

    def first_seen(self, position: _Place) -> _Place:
        """The first token that a query at `position` sees: 0 without a window, and below 0 for one that reaches beyond
        the beginning.
        """
        if self.window is None:
            return position * 0  # as many as there are positions
        return position // self.window * self.window if self.chunked else position + 1 - self.window

    def scale_of(self, head_dim: int) -> float:
        """The scale for heads of this size."""
        return 1 / math.sqrt(head_dim) if self.scale is None else self.scale


PLAIN = AttentionParams()  # of most families: all of the context, no cap


class LayerCache(NamedTuple):
    """One layer's cache. An fp8 cache (float8_e4m3fn) has a scale for each token and KV head:
    `key_scales`, `value_scales` [num_blocks, block_size, num_kv_heads] float32; the value is the stored one times it.
    `table`: which of a sequence's block tables says where its tokens lie. Values that are latents are a view of keys.
    """

    keys: Tensor
    values: Tensor
    key_scales: Tensor | None = None
    value_scales: Tensor | None = None
    table: int = 0

    @property
    def heads(self) -> KVHeads:
        """The heads that the cache holds."""
        (number, size), values = self.keys.shape[2:], self.values.shape[3]
        return KVHeads(number, size, 0 if values == size else values)


@dataclass(frozen=True, eq=False)
class AttentionBatch:
    """The S sequences of one step, those with exactly one query token first. Compared by identity.

    `block_tables`, each [rows, B] int32, are those of all rows, stale past a sequence's end, and before its window
    where every layer of a table has one: others may write to those blocks. `rows` [S] int32: the rows of the step's
    sequences.
    `context_lens` [S] int32: the tokens that a sequence's last query of this step sees, or would without a window.
    `query_starts` [S + 1] int32 into the step's T tokens.

    A group is a run of decode sequences whose first `shared_lens` [S] int32 tokens lie in the same physical blocks, by
    each table as far as any of them sees them (whole blocks, fewer than any member's context; 0 for a sequence on its
    own).
    `group_sizes` [S] int32 is the group's
    size at its first member, and 0 elsewhere.

    `keeps` [S] int32: the slot in which a recurrent layer keeps the state after a sequence's tokens of this step, or
    -1; None: it keeps none. Read only for sequences with several tokens, which can be consecutive parts of one row.

    `query_lens` and `kv_lens` are the host's copies of the query lengths and of `context_lens`; a batch that is
    replayed from a graph has none, and decode sequences only.
    """

    block_tables: tuple[Tensor, ...]
    rows: Tensor
    context_lens: Tensor
    query_starts: Tensor
    shared_lens: Tensor
    group_sizes: Tensor
    num_decode: int
    query_lens: tuple[int, ...]
    kv_lens: tuple[int, ...]
    keeps: Tensor | None = None


Recurrence = Callable[["AttentionBatch", Tensor, Tensor], object]  # of a step's sequences, what is given, and out


class Attention(Protocol):
    """Causal attention over a paged cache, and whatever else of a layer depends on which sequences a step has.
    `group_rows`: the maximum number of sequences in a group.
    """

    group_rows: int

    def plan(self, batch: AttentionBatch) -> None:
        """Prepare for the layers of a step; once per step, before the first layer."""

    def apply(self, layer: Recurrence, given: Tensor, out: Tensor) -> Tensor:
        """What a recurrent layer makes of `given` [T, N], over the planned step's sequences; it is written to `out`."""
        ...

    def __call__(
        self,
        q: Tensor,
        cache: LayerCache,
        params: AttentionParams = PLAIN,
        out: Tensor | None = None,
        sinks: Tensor | None = None,
    ) -> Tensor:
        """q [T, H, D] -> [T, H, D] over one layer's cache, which has this step's keys and values already; `out` if it
        is given, and otherwise a new tensor. Over latents, results have their size.

        `sinks` [H] float32: each head's score of a key that every query sees beside the others and whose value is
        zeros (Xiao et al., "Efficient streaming language models with attention sinks", 2023; GPT-OSS learns them).
        """
        ...


class PlannedAttention:
    """The part of `Attention` that does not depend on how it is computed: the batch that is planned."""

    _planned: AttentionBatch | None = None

    def plan(self, batch: AttentionBatch) -> None:
        """Attend over this batch from now on."""
        self._planned = batch

    def apply(self, layer: Recurrence, given: Tensor, out: Tensor) -> Tensor:
        """What a recurrent layer makes of `given`, in `out`."""
        layer(self._batch, given, out)
        return out

    @property
    def _batch(self) -> AttentionBatch:
        if self._planned is None:
            raise RuntimeError("attention was not planned")
        return self._planned
