"""Our paged attention behind transformers' attention interface.

transformers' attention modules call the function registered under their configuration's `attn_implementation` with
rotated queries, keys and values. Our function writes keys and values to the paged cache, to which queries then attend:
a step's packed row [1, T] has tokens of any sequences, each at its own position. vLLM's backend for transformers and
transformers' own continuous batching do the same. No mask is needed, since the step determines which tokens a query
sees.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from thothy_ai.kernels.operations import Operations
from thothy_ai.kernels.paged import Attention, AttentionParams, LayerCache
from thothy_ai.kernels.rotary import Rotary
from thothy_ai.kernels.step import StepTokens

IMPLEMENTATION = "thothy_ai_paged"
_ATTRIBUTE = "thothy_ai_layer"  # of attention modules


class StepContext(NamedTuple):
    """A step's tokens, its planned attention, and the caches of all layers."""

    tokens: StepTokens
    attention: Attention
    caches: Sequence[LayerCache]


@dataclass(slots=True)
class CurrentStep:
    """The step that a model computes now; one thread uses it."""

    context: StepContext | None = None


@dataclass(frozen=True, slots=True)
class PagedLayer:
    """One attention module's layer of the cache. Heads are of `width` there: shorter ones end with zeros.

    Values are of `value_dim`.
    """

    index: int
    num_heads: int
    value_dim: int
    width: int
    params: AttentionParams
    step: CurrentStep
    operations: Operations

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, sinks: Tensor | None) -> Tensor:
        """q, k, v [1, heads, T, dim], rotated already -> [1, T, heads, value_dim]; keys and values are cached."""
        context = self.step.context
        if context is None:
            raise RuntimeError("the model was called outside a step")
        cache, tokens = context.caches[self.index], context.tokens
        widened = [functional.pad(x[0].transpose(0, 1), (0, self.width - x.shape[-1])) for x in (q, k, v)]
        qkv = torch.cat(widened, dim=1)  # [T, heads, width]
        # Queries and keys are rotated already, so this table has a single position, which does not rotate.
        half = qkv.shape[-1] // 2
        rotary = Rotary(torch.ones(1, half, device=qkv.device), torch.zeros(1, half, device=qkv.device))
        nowhere = torch.zeros_like(tokens.positions)
        slots = tokens.slots[cache.table]
        q = self.operations.rotate_and_cache(qkv, None, 0.0, rotary, nowhere, slots, cache, self.num_heads)
        scores = None if sinks is None else sinks.float()
        return context.attention(q, cache, self.params, sinks=scores)[..., : self.value_dim].unsqueeze(0)


def register() -> None:
    """Make the implementation known to transformers; it may be called again."""
    from transformers import AttentionInterface  # noqa: PLC0415  slow to import

    AttentionInterface.register(IMPLEMENTATION, _attend)


def install(module: nn.Module, layer: PagedLayer) -> None:
    """Have an attention module attend by this layer."""
    setattr(module, _ATTRIBUTE, layer)


def _attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    s_aux: Tensor | None = None,
    **_: object,
) -> tuple[Tensor, None]:
    """Attention as called by transformers, with sinks in `s_aux`. The dry run has found all its other parameters."""
    del attention_mask
    layer: PagedLayer = getattr(module, _ATTRIBUTE)
    return layer(query, key, value, s_aux), None
