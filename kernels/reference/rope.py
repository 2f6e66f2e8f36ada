"""Rotary position embedding (Su et al., 2021) in the half-split layout, and the write into the paged KV cache."""

from __future__ import annotations

import torch
from torch import Tensor

from thothy_ai.kernels.paged import LayerCache
from thothy_ai.kernels.reference.norm import rms_norm
from thothy_ai.kernels.reference.quantize import quantize_fp8
from thothy_ai.kernels.rotary import QKNorm, Rotary


def apply_rope(x: Tensor, rotary: Rotary) -> Tensor:
    """Rotate each head of x [T, heads, head_dim], in float32; dimension i turns with i + N / 2.

    N, twice the width of the cosines, is head_dim, or less: then dimensions from N on stay as they are.
    """
    cos, sin = rotary.cos[:, None], rotary.sin[:, None]
    half = cos.shape[-1]
    first, second = x[..., :half].float(), x[..., half : 2 * half].float()
    rotated = torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1).to(x.dtype)
    return torch.cat((rotated, x[..., 2 * half :]), dim=-1) if 2 * half < x.shape[-1] else rotated


def write_kv(k: Tensor, v: Tensor, cache: LayerCache, slots: Tensor) -> None:
    """Write k and v [T, kv_heads, head_dim] into the cache at slots [T] int64 (block * block_size + offset).

    Where either is not finite the key becomes NaN, so that queries that see it are found out; such a value becomes 0:
    queries before it, of the same tile, multiply it by the probability 0, and 0 * NaN would spoil them.
    """
    _write(k + (k * 0 + v * 0), cache.keys, cache.key_scales, slots)
    _write(v.nan_to_num(0.0, 0.0, 0.0), cache.values, cache.value_scales, slots)


def rotate_and_cache(
    qkv: Tensor,
    norms: QKNorm | None,
    eps: float,
    rotary: Rotary | None,
    positions: Tensor,
    slots: Tensor,
    cache: LayerCache,
    num_heads: int,
) -> Tensor:
    """The queries of qkv [T, heads + 2 * kv_heads, head_dim], normed and rotated; its keys and values go to the cache.

    With heads + kv_heads, values are what keys are before their norm; with heads alone, the cache is another layer's.
    Args: `rotary` of all positions (None: nothing turns), positions [T] int64, slots [T] int64. Returns
    [T, heads, head_dim].
    """
    projected = qkv.shape[1]
    kv_heads = min(cache.keys.shape[2], projected - num_heads)
    q, k, v = qkv[:, :num_heads], qkv[:, num_heads : num_heads + kv_heads], qkv[:, projected - kv_heads :]
    if norms is not None:
        q, k = rms_norm(q, norms.query, eps), rms_norm(k, norms.key, eps)
        v = v if norms.value is None else rms_norm(v, norms.value, eps)
    if rotary is not None:
        turns = rotary.at(positions)
        q, k = apply_rope(q, turns), apply_rope(k, turns)
    if kv_heads:
        write_kv(k, v, cache, slots)
    queries: Tensor = q.contiguous()
    return queries


def _write(x: Tensor, cache: Tensor, scales: Tensor | None, slots: Tensor) -> None:
    if scales is None:
        write_slots(x, cache, slots)
        return
    quantized = quantize_fp8(x)
    write_slots(quantized.values.view(torch.uint8), cache.view(torch.uint8), slots)  # fp8 is not indexed
    write_slots(quantized.scales.squeeze(-1), scales, slots)


def write_slots(x: Tensor, cache: Tensor, slots: Tensor) -> None:
    """Write x [T, kv_heads, head_dim] into the blocks of a cache at slots [T] int64."""
    if cache.is_contiguous():
        cache.view(-1, *cache.shape[2:]).index_copy_(0, slots, x)
    else:  # other layers have their part of each block
        cache[slots // cache.shape[1], slots % cache.shape[1]] = x
