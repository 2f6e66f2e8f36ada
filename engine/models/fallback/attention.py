"""Our paged attention behind transformers' attention interface.

transformers' attention modules call what is registered under their configuration's `attn_implementation` with queries,
keys and values after rotary embedding. Here keys and values go to the paged cache, and queries attend to that: the
packed row [1, T] of a step holds tokens of any sequences, each at its own position. vLLM's backend for transformers and
transformers' own continuous batching do alike. No mask is made: which tokens a query sees, the step says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from thothy_ai.engine.models.fallback.dry_run import LayerAttention
from thothy_ai.kernels.operations import Operations
from thothy_ai.kernels.paged import Attention, LayerCache
from thothy_ai.kernels.rotary import Rotary
from thothy_ai.kernels.step import StepTokens

IMPLEMENTATION = "thothy_ai_paged"
_ATTRIBUTE = "thothy_ai_layer"  # of attention modules


class StepContext(NamedTuple):
    """What layers compute a step with. `attention` has planned it; `caches` are those of all layers."""

    tokens: StepTokens
    attention: Attention
    caches: Sequence[LayerCache]


@dataclass(slots=True)
class CurrentStep:
    """The step that is computed now, of one model on one thread."""

    context: StepContext | None = None


class PagedLayer:
    """One attention module's layer of the cache. Its heads are of `width` there: shorter ones end with zeros."""

    def __init__(
        self, index: int, layer: LayerAttention, width: int, step: CurrentStep, operations: Operations
    ) -> None:
        self._index, self._layer, self._width = index, layer, width
        self._step, self._operations = step, operations

    def __call__(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """q, k, v [1, heads, T, dim], rotated already -> [1, T, heads, value_dim]; keys and values are cached."""
        context = self._step.context
        if context is None:
            raise RuntimeError("the model was called outside a step")
        cache = context.caches[self._index]
        qkv = torch.cat([self._widened(part) for part in (q, k, v)], dim=1)
        queries = self._operations.rotate_and_cache(
            qkv, None, 0.0, _no_turn(qkv), torch.zeros_like(context.tokens.positions), context.tokens.slots, cache,
            self._layer.num_heads,
        )  # fmt: skip
        attended = context.attention(queries, cache, self._layer.params)
        return attended[..., : self._layer.value_dim].unsqueeze(0)

    def _widened(self, x: Tensor) -> Tensor:
        """[1, heads, T, dim] -> [T, heads, width]."""
        return functional.pad(x[0].transpose(0, 1), (0, self._width - x.shape[-1]))


def register() -> None:
    """Make the implementation known to transformers; again does nothing."""
    from transformers import AttentionInterface  # noqa: PLC0415  slow to import

    AttentionInterface.register(IMPLEMENTATION, _attend)


def install(module: nn.Module, layer: PagedLayer) -> None:
    """Have an attention module attend by this layer."""
    setattr(module, _ATTRIBUTE, layer)


def _attend(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **_: object
) -> tuple[Tensor, None]:
    """As transformers calls it; what a layer's attention depends on was read from a dry run."""
    del attention_mask
    layer: PagedLayer = getattr(module, _ATTRIBUTE)
    return layer(query, key, value), None


def _no_turn(qkv: Tensor) -> Rotary:
    """A rotary table of one position, which turns nothing."""
    half = qkv.shape[-1] // 2
    return Rotary(torch.ones(1, half, device=qkv.device), torch.zeros(1, half, device=qkv.device))
