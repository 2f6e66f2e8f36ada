"""QK-norm, rotary embedding and the write into the paged KV cache, in one Triton kernel.

A program owns a few heads of one token, either queries or keys and values. It loads two halves of a head's dimensions,
since the half-split layout rotates one with the other. If only the first TURNED dimensions rotate (partial rotary
embedding), each half consists of a half of these and a half of the rest.
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
    rotary: Rotary | None,
    positions: Tensor,
    slots: Tensor,
    cache: LayerCache,
    num_heads: int,
) -> Tensor:
    """Norm and rotate the queries of qkv [T, heads + 2 * kv_heads, head_dim]; write its keys and values to the cache.

    With heads + kv_heads, values are the keys before their norm; with heads alone, the cache is another layer's.
    Args: the `rotary` table of all positions (None: no rotation), positions [T] int64, slots [T] int64. A token's heads
    are contiguous, and the caches of keys and values have the same layout. Returns [T, heads, head_dim].
    """
    tokens, projected, dim = qkv.shape
    page, kv_heads = cache.keys.shape[1], min(cache.keys.shape[2], projected - num_heads)
    out = qkv.new_empty(tokens, num_heads, dim)
    half = triton.next_power_of_2(dim // 2)
    heads = max(1, min(triton.next_power_of_2(kv_heads or num_heads), _ELEMENTS // (2 * half)))
    parts = triton.cdiv(num_heads, heads) + triton.cdiv(kv_heads, heads)
    _rotate_and_cache_kernel[(tokens, parts)](
        out,
        *cache[:4],
        qkv,
        *(norms or (None, None, None)),
        *(rotary or (None, None)),
        positions,
        slots,
        eps,
        qkv.stride(0),
        *cache.keys.stride()[:3],
        *(cache.key_scales.stride() if cache.key_scales is not None else (0, 0, 0)),
        num_heads,
        kv_heads,
        projected - kv_heads,
        dim,
        dim if rotary is None else 2 * rotary.cos.shape[1],
        page,
        half,
        heads,
        num_warps=_WARPS,
    )
    return out


@triton.jit(do_not_specialize_on_alignment=["positions", "slots"])
def _rotate_and_cache_kernel(
    out, keys, values, key_scales, value_scales, qkv, query_norm, key_norm, value_norm, cos, sin, positions, slots,
    eps,
    qkv_token, kv_block, kv_slot, kv_head, scale_block, scale_slot, scale_head,
    QUERY_HEADS: tl.constexpr, KV_HEADS: tl.constexpr,
    VALUES: tl.constexpr,  # the first head of values
    DIM: tl.constexpr,
    TURNED: tl.constexpr,  # the first dimensions of a head, which rotate
    PAGE: tl.constexpr,
    HALF: tl.constexpr,  # DIM // 2, rounded up to a power of two
    HEADS: tl.constexpr,  # per program
):  # fmt: skip
    token, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    query_parts: tl.constexpr = (QUERY_HEADS + HEADS - 1) // HEADS
    source = qkv + token * qkv_token
    if part < query_parts:
        head = part * HEADS + tl.arange(0, HEADS)
        first, second = _load(source, head, QUERY_HEADS, DIM, TURNED, HALF)
        first, second = _normed(first, second, query_norm, eps, DIM, TURNED, HALF)
        first, second = _rotated(first, second, cos, sin, tl.load(positions + token), DIM, TURNED, HALF)
        _store(out + token * QUERY_HEADS * DIM, head * DIM, first, second, head < QUERY_HEADS, DIM, TURNED, HALF)
    else:
        slot = tl.load(slots + token)
        block, inner = slot // PAGE, slot % PAGE
        at, scale_at = block * kv_block + inner * kv_slot, block * scale_block + inner * scale_slot
        head = (part - query_parts) * HEADS + tl.arange(0, HEADS)
        value, value_second = _load(source + VALUES * DIM, head, KV_HEADS, DIM, TURNED, HALF)
        value, value_second = _normed(value, value_second, value_norm, eps, DIM, TURNED, HALF)
        first, second = _load(source + QUERY_HEADS * DIM, head, KV_HEADS, DIM, TURNED, HALF)
        first, second = _normed(first, second, key_norm, eps, DIM, TURNED, HALF)
        first, second = _rotated(first, second, cos, sin, tl.load(positions + token), DIM, TURNED, HALF)
        first, value = _separate_finite(first, value)
        second, value_second = _separate_finite(second, value_second)
        _cache(
            values + at,
            value_scales,
            scale_at,
            head,
            value,
            value_second,
            kv_head,
            scale_head,
            KV_HEADS,
            DIM,
            TURNED,
            HALF,
        )
        _cache(keys + at, key_scales, scale_at, head, first, second, kv_head, scale_head, KV_HEADS, DIM, TURNED, HALF)


@triton.jit
def _places(DIM: tl.constexpr, TURNED: tl.constexpr, HALF: tl.constexpr):
    """The dimensions of both halves in a head, each [HALF]; those that rotate come first."""
    dim = tl.arange(0, HALF)
    if TURNED == DIM:
        first, second = dim, dim + DIM // 2
    else:
        first = tl.where(dim < TURNED // 2, dim, dim + TURNED // 2)
        second = tl.where(dim < TURNED // 2, dim + TURNED // 2, dim + DIM // 2)
    return first, second


@triton.jit
def _load(source, head, COUNT: tl.constexpr, DIM: tl.constexpr, TURNED: tl.constexpr, HALF: tl.constexpr):
    """Both halves of the heads, each [HEADS, HALF] float32; zero outside."""
    inside = (head < COUNT)[:, None] & (tl.arange(0, HALF) < DIM // 2)[None, :]
    place, place_second = _places(DIM, TURNED, HALF)
    row = source + head[:, None] * DIM
    first = tl.load(row + place[None, :], mask=inside, other=0.0).to(tl.float32)
    second = tl.load(row + place_second[None, :], mask=inside, other=0.0).to(tl.float32)
    return first, second


@triton.jit
def _normed(first, second, weight, eps, DIM: tl.constexpr, TURNED: tl.constexpr, HALF: tl.constexpr):
    if weight is not None:
        inside = tl.arange(0, HALF) < DIM // 2
        place, place_second = _places(DIM, TURNED, HALF)
        squares = tl.sum(first * first, 1) + tl.sum(second * second, 1)
        factor = tl.rsqrt(squares / DIM + eps)[:, None]
        first = first * factor * tl.load(weight + place, mask=inside, other=0.0).to(tl.float32)[None, :]
        second = second * factor * tl.load(weight + place_second, mask=inside, other=0.0).to(tl.float32)[None, :]
    return first, second


@triton.jit
def _rotated(first, second, cos, sin, position, DIM: tl.constexpr, TURNED: tl.constexpr, HALF: tl.constexpr):
    if cos is not None:
        dim = tl.arange(0, HALF)
        at = position * (TURNED // 2) + dim
        rest: tl.constexpr = 0.0 if TURNED == DIM else 1.0  # the cosine of dimensions that do not rotate or exist
        turn_cos = tl.load(cos + at, mask=dim < TURNED // 2, other=rest)[None, :]
        turn_sin = tl.load(sin + at, mask=dim < TURNED // 2, other=0.0)[None, :]
        first, second = first * turn_cos - second * turn_sin, second * turn_cos + first * turn_sin
    return first, second


@triton.jit
def _separate_finite(key, value):
    """Keys and values. If either is not finite, the key becomes NaN, and such a value 0; the reference says why."""
    finite = tl.abs(value) < float("inf")
    return tl.where(finite & (tl.abs(key) < float("inf")), key, float("nan")), tl.where(finite, value, 0.0)


@triton.jit
def _store(target, at, first, second, head_inside, DIM: tl.constexpr, TURNED: tl.constexpr, HALF: tl.constexpr):
    """Write both halves of the heads to target + at[head]."""
    inside = head_inside[:, None] & (tl.arange(0, HALF) < DIM // 2)[None, :]
    place, place_second = _places(DIM, TURNED, HALF)
    row = target + at[:, None]
    tl.store(row + place[None, :], first.to(target.dtype.element_ty), mask=inside)
    tl.store(row + place_second[None, :], second.to(target.dtype.element_ty), mask=inside)


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
    TURNED: tl.constexpr,
    HALF: tl.constexpr,
):
    """Write a token's heads into its slot, quantized by head where there are scales."""
    inside = head < KV_HEADS
    if scales is not None:
        scale = fp8_scale(tl.max(tl.maximum(tl.abs(first), tl.abs(second)), 1))
        scale += tl.sum(first * 0.0 + second * 0.0, 1)  # passes on NaN, which a maximum ignores
        tl.store(scales + scale_at + head * scale_head, scale, mask=inside)
        factor = reciprocal(scale)[:, None]
        first, second = to_fp8(first * factor), to_fp8(second * factor)
    _store(target, head * kv_head, first, second, inside, DIM, TURNED, HALF)
