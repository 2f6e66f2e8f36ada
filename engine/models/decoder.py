"""A step's forward pass, from tokens to hidden states to logits, and the decoder that all families share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from thothy_ai.engine.models.layer_kinds import one_of_each_kind
from thothy_ai.engine.models.layers.attention import LayerContext
from thothy_ai.engine.models.layers.embedding import Embedding, Head
from thothy_ai.engine.models.layers.layer_inputs import LayerInputs
from thothy_ai.engine.models.layers.norm import FinalLayerNorm, FinalNorm
from thothy_ai.kernels.operations import Operations
from thothy_ai.kernels.paged import Attention, LayerCache
from thothy_ai.kernels.states import LayerState
from thothy_ai.kernels.step import StepTokens

LayerMemory = LayerCache | LayerState


class DecoderLayer(Protocol):
    """A family's layer, in two parts.

    It takes an update that is not added to the residual stream yet, and returns the next one, so that an addition and
    the norm after it are one operation.
    """

    def attend(self, update: Tensor, residual: Tensor, context: LayerContext, /) -> Tensor:
        """[T, hidden] -> results of attention [T, heads * head_dim]; `residual` is overwritten with the sum."""
        ...

    def finish(self, attended: Tensor, residual: Tensor, operations: Operations, /) -> Tensor:
        """attended [R, heads * head_dim] of any tokens -> their next update [R, hidden]; `residual` [R, hidden] is
        overwritten with the sum.
        """
        ...


class StepDecoder(Protocol):
    """Computes a step in parts, so that everything between attention can be captured separately from it."""

    @property
    def captures(self) -> bool:
        """Whether its pass can be captured in a CUDA graph: it never waits for the device."""
        ...

    @property
    def captures_between_attention(self) -> bool:
        """Whether the parts between layers' attention or recurrences can be captured."""
        ...

    @property
    def ends_with_attention(self) -> bool:
        """Whether the last layer's attention is the last operation of `body`."""
        ...

    @property
    def table(self) -> Tensor:
        """The table of token embeddings; all weights are on its device, and activations have its type."""
        ...

    def body(
        self, tokens: StepTokens, caches: Sequence[LayerMemory], attention: Attention, operations: Operations, /
    ) -> tuple[Tensor, Tensor]:
        """The pass up to the last layer's attention, which is planned already; returns its results
        [T, heads * head_dim] and the residual stream [T, hidden].
        """
        ...

    def tail(self, attended: Tensor, residual: Tensor, wanted: Tensor | None, operations: Operations, /) -> Tensor:
        """The rest of the pass, for the tokens `wanted` [R] int64 or for all: normalized hidden states [R, hidden]."""
        ...

    def logits(self, hidden: Tensor, /) -> Tensor:
        """Logits [R, vocab] of hidden states [R, hidden]."""
        ...

    def logits_into(self, hidden: Tensor, out: Tensor, /) -> None:
        """As `logits`, written to `out` [R, vocab]."""
        ...

    def abridged(self, caches: Sequence[LayerMemory], /) -> tuple[StepDecoder, Sequence[LayerMemory]]:
        """A decoder with one layer of each kind, and their caches; its pass runs the same kernels as this one's."""
        ...


@dataclass(frozen=True, slots=True)
class Decoder:
    """A family's parts, with their weights; `inputs` makes layers' inputs other than the residual stream, if any."""

    captures: ClassVar[bool] = True
    captures_between_attention: ClassVar[bool] = True

    embedding: Embedding
    layers: tuple[DecoderLayer, ...]
    norm: FinalNorm | FinalLayerNorm
    head: Head
    ends_with_attention: bool = True
    inputs: LayerInputs | None = None

    @property
    def table(self) -> Tensor:
        """The table of token embeddings."""
        return self.embedding.table

    def body(
        self, tokens: StepTokens, caches: Sequence[LayerMemory], attention: Attention, operations: Operations
    ) -> tuple[Tensor, Tensor]:
        residual = self.embedding(tokens.ids)
        given = repeat(None) if self.inputs is None else self.inputs(tokens.ids, residual, operations)
        # An abridged decoder has fewer layers than inputs.
        pairs = zip(caches, given, strict=False)
        contexts = [LayerContext(operations, tokens, attention, *each) for each in pairs]
        layer = self.layers[0]
        attended = layer.attend(torch.zeros_like(residual), residual, contexts[0])
        for following, context in zip(self.layers[1:], contexts[1:], strict=True):
            update = layer.finish(attended, residual, operations)
            attended = following.attend(update, residual, context)
            layer = following
        return attended, residual

    def tail(self, attended: Tensor, residual: Tensor, wanted: Tensor | None, operations: Operations) -> Tensor:
        # Only a prompt's last token is needed: for the others, the last layer skips its output projection and its MLP,
        # which is nearly all of its work.
        if wanted is not None:
            attended, residual = attended.index_select(0, wanted), residual.index_select(0, wanted)
        update = self.layers[-1].finish(attended, residual, operations)
        return self.norm(update, residual, operations)

    def logits(self, hidden: Tensor) -> Tensor:
        return self.head(hidden)

    def logits_into(self, hidden: Tensor, out: Tensor) -> None:
        self.head.into(hidden, out)

    def abridged(self, caches: Sequence[LayerMemory]) -> tuple[Decoder, Sequence[LayerMemory]]:
        kept = one_of_each_kind(zip(self.layers, caches, strict=True))
        return replace(self, layers=tuple(self.layers[index] for index in kept)), [caches[index] for index in kept]
