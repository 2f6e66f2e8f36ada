"""The importance of KV blocks in Triton; `kernels/reference/importance.py` says what it is.

A program owns a block, and reads its keys and values head by head.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from thothy_ai.kernels.paged import LayerCache

_SHORTEST = tl.constexpr(1e-6)  # length of a key


def add_importance(cache: LayerCache, blocks: Tensor, importance: Tensor) -> None:
    """Add to `importance` [B] float32 the mean of |value| / |key| over all tokens and heads of each of the full
    `blocks` [B] int32. It is NaN if the block has a key that is not finite.
    """
    page, heads, key_dim = cache.keys.shape[1:]
    value_dim = cache.values.shape[3]
    _add_importance_kernel[(len(blocks),)](
        importance,
        blocks,
        *cache[:4],
        *cache.keys.stride()[:3],
        *cache.values.stride()[:3],
        *(cache.key_scales.stride() if cache.key_scales is not None else (0, 0, 0)),
        heads,
        key_dim,
        value_dim,
        page,
        triton.next_power_of_2(page),
        triton.next_power_of_2(key_dim),
        triton.next_power_of_2(value_dim),
    )


@triton.jit(do_not_specialize_on_alignment=["blocks"])
def _add_importance_kernel(
    importance, blocks, keys, values, key_scales, value_scales,
    key_block, key_slot, key_head, value_block, value_slot, value_head, scale_block, scale_slot, scale_head,
    HEADS: tl.constexpr,
    KEY_DIM: tl.constexpr,
    VALUE_DIM: tl.constexpr,
    PAGE: tl.constexpr,
    TOKENS: tl.constexpr,  # PAGE, KEY_DIM and VALUE_DIM, rounded up to powers of two
    KEY_WIDTH: tl.constexpr,
    VALUE_WIDTH: tl.constexpr,
):  # fmt: skip
    index = tl.program_id(0)
    block = tl.load(blocks + index).to(tl.int64)
    token = tl.arange(0, TOKENS)
    total = tl.zeros((TOKENS,), tl.float32)
    for head in range(HEADS):
        key = keys + block * key_block + head * key_head
        value = values + block * value_block + head * value_head
        key_length = _lengths(key, token, key_slot, PAGE, KEY_DIM, KEY_WIDTH)
        value_length = _lengths(value, token, value_slot, PAGE, VALUE_DIM, VALUE_WIDTH)
        if key_scales is not None:
            scale_at = block * scale_block + token * scale_slot + head * scale_head
            key_length *= tl.load(key_scales + scale_at, mask=token < PAGE, other=0.0)
            value_length *= tl.load(value_scales + scale_at, mask=token < PAGE, other=0.0)
        key_length = tl.where(key_length < _SHORTEST, _SHORTEST, key_length)  # NaN stays
        total += tl.where(token < PAGE, value_length / key_length, 0.0)
    at = importance + index
    tl.store(at, tl.load(at) + tl.sum(total, 0) / (HEADS * PAGE))


@triton.jit
def _lengths(source, token, slot, PAGE: tl.constexpr, DIM: tl.constexpr, WIDTH: tl.constexpr):
    """The lengths [TOKENS] of a head's stored vectors."""
    dim = tl.arange(0, WIDTH)
    inside = (token < PAGE)[:, None] & (dim < DIM)[None, :]
    stored = tl.load(source + token[:, None] * slot + dim[None, :], mask=inside, other=0.0).to(tl.float32)
    return tl.sqrt(tl.sum(stored * stored, 1))
