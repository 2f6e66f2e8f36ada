"""How much the tokens of a KV block matter to later ones, judged by their keys and values alone.

A token matters as |value| / |key| (Chitty-Venkata et al., "PagedEviction: Structured block-wise KV cache pruning for
efficient large language model inference", 2025). A rotated key is as long as before.
"""

from __future__ import annotations

import torch
from torch import Tensor

from thothy_ai.kernels.paged import LayerCache
from thothy_ai.kernels.reference.attention import gather_blocks

_SHORTEST = 1e-6  # length of a key


def add_importance(cache: LayerCache, blocks: Tensor, importance: Tensor) -> None:
    """Add to `importance` [B] float32 the mean of |value| / |key| over all tokens and heads of each of the full
    `blocks` [B] int32. It is NaN if the block has a key that is not finite.
    """
    keys, values = gather_blocks(cache, blocks, torch.float32)
    lengths = keys.float().norm(dim=-1).clamp_min(_SHORTEST)
    importance += (values.float().norm(dim=-1) / lengths).mean((1, 2))
