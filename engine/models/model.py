"""`Model`: a decoder on its device, with the operations that it computes with."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from thothy_ai.engine.models.config import ModelConfig
from thothy_ai.engine.models.decoder import StepDecoder
from thothy_ai.engine.models.kv_cache import KVCache
from thothy_ai.engine.models.layers.adapted import AdapterBank
from thothy_ai.kernels.operations import Operations
from thothy_ai.kernels.paged import Attention, AttentionBatch
from thothy_ai.kernels.step import StepTokens


@dataclass(frozen=True, slots=True)
class Model:
    """A decoder on its device."""

    config: ModelConfig
    decoder: StepDecoder
    num_bytes: int  # of all weights
    operations: Operations
    adapters: AdapterBank

    @property
    def device(self) -> torch.device:
        return self.decoder.table.device

    @property
    def dtype(self) -> torch.dtype:
        """The type of activations, and of weights and KV unless they are quantized."""
        return self.decoder.table.dtype

    @property
    def captures(self) -> bool:
        """Whether decode steps can be captured in CUDA graphs."""
        return self.decoder.captures

    @property
    def captures_between_attention(self) -> bool:
        """Whether other steps can be captured in pieces between attention."""
        return self.decoder.captures_between_attention

    @property
    def ends_with_attention(self) -> bool:
        """Whether a pass's body ends with the last layer's attention."""
        return self.decoder.ends_with_attention

    @torch.inference_mode()
    def forward(
        self,
        tokens: StepTokens,
        batch: AttentionBatch,
        cache: KVCache,
        attention: Attention,
        wanted: Tensor | None = None,
    ) -> Tensor:
        """Final hidden states [R, hidden], normalized, of the tokens `wanted` [R] int64 among a step's T, or of all.

        The KV of all T tokens is written to the cache.
        """
        attention.plan(batch)
        return self.tail(*self.body(tokens, cache, attention), wanted)

    @torch.inference_mode()
    def body(self, tokens: StepTokens, cache: KVCache, attention: Attention) -> tuple[Tensor, Tensor]:
        """The pass up to the last layer's attention, which is planned; `tail` takes what it returns."""
        return self.decoder.body(tokens, cache.layers, attention, self.operations)

    @torch.inference_mode()
    def tail(self, attended: Tensor, residual: Tensor, wanted: Tensor | None = None) -> Tensor:
        """The rest of the pass, for the tokens `wanted` [R] int64 or for all."""
        if wanted is not None:
            self.adapters.narrow(wanted)
        return self.decoder.tail(attended, residual, wanted, self.operations)

    @torch.inference_mode()
    def logits(self, hidden: Tensor) -> Tensor:
        """Logits [R, vocab] of hidden states [R, hidden], in the model's type."""
        return self.decoder.logits(hidden)

    @torch.inference_mode()
    def logits_into(self, hidden: Tensor, out: Tensor) -> None:
        """As `logits`, written to `out` [R, vocab]."""
        self.decoder.logits_into(hidden, out)

    def abridged(self, cache: KVCache) -> tuple[Model, KVCache]:
        """The model with one layer of each kind, and the cache of these, to run the same kernels in less time.

        Its results are of no use. The model itself if it has no other layers.
        """
        decoder, layers = self.decoder.abridged(cache.layers)
        if len(layers) == len(cache.layers):
            return self, cache
        return replace(self, decoder=decoder), replace(cache, layers=tuple(layers))
