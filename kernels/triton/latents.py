"""The rotary embedding and the cache write of multi-head latent attention, in one Triton kernel."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from thothy_ai.kernels.paged import LayerCache
from thothy_ai.kernels.rotary import Rotary
from thothy_ai.kernels.triton.tiles import power_of_two

_WARPS = 2


def rotate_and_cache_latents(
    q: Tensor,
    kv: Tensor,
    weight: Tensor,
    eps: float,
    rotary: Rotary,
    positions: Tensor,
    slots: Tensor,
    cache: LayerCache,
    out: Tensor,
    *,
    interleaved: bool,
) -> None:
    """Rotate the last numbers of each head's query, and cache each token's normed latent with its rotated key.

    Args: q [T, heads, plain + rotary], whose rotated part is written to that of `out` [T, heads, rank + rotary]; kv
    [T, rank + rotary], latents and keys; weight [rank]; the `rotary` table of all positions; positions
    [T] int64; slots [T] int64. `interleaved`: rotary pairs are adjacent in q and kv; results are always half-split.
    Each head's numbers are contiguous in all tensors.
    """
    tokens, heads, size = q.shape
    rank = len(weight)
    half = (kv.shape[1] - rank) // 2
    _latents_kernel[(tokens, 2)](
        out, cache.keys, q, kv, weight, *rotary, positions, slots, eps,
        *out.stride()[:2], *cache.keys.stride()[:2], *q.stride()[:2], kv.stride(0),
        HEADS=heads, HEADS_PAD=power_of_two(heads), PLAIN=size - 2 * half, RANK=rank, RANK_PAD=power_of_two(rank),
        HALF=half, HALF_PAD=power_of_two(half), PAGE=cache.keys.shape[1], INTERLEAVED=interleaved, num_warps=_WARPS,
    )  # fmt: skip


@triton.jit(do_not_specialize_on_alignment=["positions", "slots"])
def _latents_kernel(
    out, keys, q, kv, weight, cos, sin, positions, slots, eps,
    out_token, out_head, kv_block, kv_slot, q_token, q_head, kv_token,
    HEADS: tl.constexpr, HEADS_PAD: tl.constexpr,
    PLAIN: tl.constexpr,  # numbers of a query before the rotary ones
    RANK: tl.constexpr, RANK_PAD: tl.constexpr,
    HALF: tl.constexpr,  # rotary pairs
    HALF_PAD: tl.constexpr, PAGE: tl.constexpr, INTERLEAVED: tl.constexpr,
):  # fmt: skip
    """Program (token, part): the token's latent and key, or a part of its queries."""
    token, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    pair = tl.arange(0, HALF_PAD)
    turns = pair < HALF
    angle = tl.load(positions + token) * HALF + pair
    turn_cos, turn_sin = tl.load(cos + angle, mask=turns, other=0.0), tl.load(sin + angle, mask=turns, other=0.0)
    first_place = 2 * pair if INTERLEAVED else pair
    second_place = 2 * pair + 1 if INTERLEAVED else pair + HALF
    if part == 0:
        rank = tl.arange(0, RANK_PAD)
        inside = rank < RANK
        row = kv + token * kv_token
        latent = tl.load(row + rank, mask=inside, other=0.0).to(tl.float32)
        factor = tl.load(weight + rank, mask=inside, other=0.0).to(tl.float32)
        latent = latent * tl.rsqrt(tl.sum(latent * latent, 0) / RANK + eps) * factor
        first = tl.load(row + RANK + first_place, mask=turns, other=0.0).to(tl.float32)
        second = tl.load(row + RANK + second_place, mask=turns, other=0.0).to(tl.float32)
        first, second = first * turn_cos - second * turn_sin, second * turn_cos + first * turn_sin
        # As in the reference, the key is NaN if any number is not finite.
        finite = tl.abs(latent) < float("inf")
        sound = (tl.min(finite.to(tl.int32), 0) > 0) & (tl.abs(first) + tl.abs(second) < float("inf"))
        latent = tl.where(finite, latent, 0.0)
        first, second = tl.where(sound, first, float("nan")), tl.where(sound, second, float("nan"))
        slot = tl.load(slots + token)
        target = keys + slot // PAGE * kv_block + slot % PAGE * kv_slot
        tl.store(target + rank, latent.to(keys.dtype.element_ty), mask=inside)
        tl.store(target + RANK + pair, first.to(keys.dtype.element_ty), mask=turns)
        tl.store(target + RANK + HALF + pair, second.to(keys.dtype.element_ty), mask=turns)
    else:
        head = tl.arange(0, HEADS_PAD)[:, None]
        used = (head < HEADS) & turns[None, :]
        rows = q + token * q_token + head * q_head + PLAIN
        firsts = tl.load(rows + first_place[None, :], mask=used, other=0.0).to(tl.float32)
        seconds = tl.load(rows + second_place[None, :], mask=used, other=0.0).to(tl.float32)
        results = out + token * out_token + head * out_head + RANK + pair[None, :]
        tl.store(results, (firsts * turn_cos - seconds * turn_sin).to(out.dtype.element_ty), mask=used)
        tl.store(results + HALF, (seconds * turn_cos + firsts * turn_sin).to(out.dtype.element_ty), mask=used)
