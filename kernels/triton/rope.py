"""QK-norm, rotary embedding and the write into the paged KV cache, in one Triton kernel.

A program owns a few heads of one token, queries or keys and values, as two halves of a head's dimensions: the
half-split layout turns one with the other.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from thothy_ai.kernels.paged import LayerCache
from thothy_ai.kernels.rotary import QKNorm, Rotary
from thothy_ai.kernels.triton.quantize import fp8_scale, reciprocal, to_fp8

_ELEMENTS = 1024  # of a program
_WARPS = 2


def rotate_and_cache(
    qkv: Tensor,
    norms: QKNorm | None,
    eps: float,
    rotary: Rotary,
    positions: Tensor,
    slots: Tensor,
    cache: LayerCache,
    num_heads: int,
) -> Tensor:
    """The queries of qkv [T, heads + 2 * kv_heads, head_dim], normed and rotated; its keys and values go to the cache.

    Args: `rotary` of all positions, positions [T] int64, slots [T] int64. The heads of a token lie side by side, and
    keys and values are laid out alike. Returns [T, heads, head_dim].
    """
    tokens, _, dim = qkv.shape
    _, page, kv_heads, _ = cache.keys.shape
    out = qkv.new_empty(tokens, num_heads, dim)
    half = triton.next_power_of_2(dim // 2)
    heads = max(1, min(triton.next_power_of_2(kv_heads), _ELEMENTS // (2 * half)))
    parts = triton.cdiv(num_heads, heads) + triton.cdiv(kv_heads, heads)
    _rotate_and_cache_kernel[(tokens, parts)](
        out,
        *cache,
        qkv,
        *(norms or (None, None)),
        *rotary,
        positions,
        slots,
        eps,
        qkv.stride(0),
        *cache.keys.stride()[:3],
        *(cache.key_scales.stride() if cache.key_scales is not None else (0, 0, 0)),
        num_heads,
        kv_heads,
        dim,
        page,
        half,
        heads,
        num_warps=_WARPS,
    )
    return out


@triton.jit(do_not_specialize_on_alignment=["positions", "slots"])
def _rotate_and_cache_kernel(
    out,
    keys,
    values,
    key_scales,
    value_scales,
    qkv,
    query_norm,
    key_norm,
    cos,
    sin,
    positions,
    slots,
    eps,
    qkv_token,
    kv_block,
    kv_slot,
    kv_head,
    scale_block,
    scale_slot,
    scale_head,
    QUERY_HEADS: tl.constexpr,
    KV_HEADS: tl.constexpr,
    DIM: tl.constexpr,
    PAGE: tl.constexpr,
    HALF: tl.constexpr,  # DIM // 2, to a power of two
    HEADS: tl.constexpr,  # of a program
):
    token, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    query_parts: tl.constexpr = (QUERY_HEADS + HEADS - 1) // HEADS
    source = qkv + token * qkv_token
    if part < query_parts:
        head = part * HEADS + tl.arange(0, HEADS)
        first, second = _load(source, head, QUERY_HEADS, DIM, HALF)
        first, second = _normed(first, second, query_norm, eps, DIM, HALF)
        first, second = _rotated(first, second, cos, sin, tl.load(positions + token), DIM, HALF)
        _store(out + token * QUERY_HEADS * DIM, head * DIM, first, second, head < QUERY_HEADS, DIM, HALF)
    else:
        slot = tl.load(slots + token)
        block, inner = slot // PAGE, slot % PAGE
        at, scale_at = block * kv_block + inner * kv_slot, block * scale_block + inner * scale_slot
        head = (part - query_parts) * HEADS + tl.arange(0, HEADS)
        value, value_second = _load(source + (QUERY_HEADS + KV_HEADS) * DIM, head, KV_HEADS, DIM, HALF)
        first, second = _load(source + QUERY_HEADS * DIM, head, KV_HEADS, DIM, HALF)
        first, second = _normed(first, second, key_norm, eps, DIM, HALF)
        first, second = _rotated(first, second, cos, sin, tl.load(positions + token), DIM, HALF)
        first, value = _separate_finite(first, value)
        second, value_second = _separate_finite(second, value_second)
        _cache(values + at, value_scales, scale_at, head, value, value_second, kv_head, scale_head, KV_HEADS, DIM, HALF)
        _cache(keys + at, key_scales, scale_at, head, first, second, kv_head, scale_head, KV_HEADS, DIM, HALF)


@triton.jit
def _load(source, head, COUNT: tl.constexpr, DIM: tl.constexpr, HALF: tl.constexpr):
    """Both halves of the heads, each [HEADS, HALF] float32; zero outside."""
    dim = tl.arange(0, HALF)
    inside = (head < COUNT)[:, None] & (dim < DIM // 2)[None, :]
    place = source + head[:, None] * DIM + dim[None, :]
    first = tl.load(place, mask=inside, other=0.0).to(tl.float32)
    second = tl.load(place + DIM // 2, mask=inside, other=0.0).to(tl.float32)
    return first, second


@triton.jit
def _normed(first, second, weight, eps, DIM: tl.constexpr, HALF: tl.constexpr):
    if weight is not None:
        dim = tl.arange(0, HALF)
        inside = dim < DIM // 2
        squares = tl.sum(first * first, 1) + tl.sum(second * second, 1)
        factor = tl.rsqrt(squares / DIM + eps)[:, None]
        first = first * factor * tl.load(weight + dim, mask=inside, other=0.0).to(tl.float32)[None, :]
        second = second * factor * tl.load(weight + DIM // 2 + dim, mask=inside, other=0.0).to(tl.float32)[None, :]
    return first, second


@triton.jit
def _rotated(first, second, cos, sin, position, DIM: tl.constexpr, HALF: tl.constexpr):
    dim = tl.arange(0, HALF)
    at = position * (DIM // 2) + dim
    turn_cos = tl.load(cos + at, mask=dim < DIM // 2, other=0.0)[None, :]
    turn_sin = tl.load(sin + at, mask=dim < DIM // 2, other=0.0)[None, :]
    return first * turn_cos - second * turn_sin, second * turn_cos + first * turn_sin


@triton.jit
def _separate_finite(key, value):
    """Keys and values; where either is not finite, the key is NaN and such a value 0: the reference says why."""
    finite = tl.abs(value) < float("inf")
    return tl.where(finite & (tl.abs(key) < float("inf")), key, float("nan")), tl.where(finite, value, 0.0)


@triton.jit
def _store(target, at, first, second, head_inside, DIM: tl.constexpr, HALF: tl.constexpr):
    """Write both halves of the heads to target + at[head]."""
    dim = tl.arange(0, HALF)
    inside = head_inside[:, None] & (dim < DIM // 2)[None, :]
    place = target + at[:, None] + dim[None, :]
    tl.store(place, first.to(target.dtype.element_ty), mask=inside)
    tl.store(place + DIM // 2, second.to(target.dtype.element_ty), mask=inside)


@triton.jit
def _cache(
    target,
    scales,
    scale_at,
    head,
    first,
    second,
    kv_head,
    scale_head,
    KV_HEADS: tl.constexpr,
    DIM: tl.constexpr,
    HALF: tl.constexpr,
):
    """Write a token's heads into its slot, quantized by head where there are scales."""
    inside = head < KV_HEADS
    if scales is not None:
        scale = fp8_scale(tl.max(tl.maximum(tl.abs(first), tl.abs(second)), 1))
        scale += tl.sum(first * 0.0 + second * 0.0, 1)  # NaN where there is one: a maximum passes it by
        tl.store(scales + scale_at + head * scale_head, scale, mask=inside)
        factor = reciprocal(scale)[:, None]
        first, second = to_fp8(first * factor), to_fp8(second * factor)
    _store(target, head * kv_head, first, second, inside, DIM, HALF)
