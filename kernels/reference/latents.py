"""The rotation and the cache write of multi-head latent attention (DeepSeek-AI, "DeepSeek-V2", 2024)."""

from __future__ import annotations

import torch
from torch import Tensor

from thothy_ai.kernels.paged import LayerCache
from thothy_ai.kernels.reference.norm import rms_norm
from thothy_ai.kernels.reference.rope import apply_rope, write_slots
from thothy_ai.kernels.rotary import Rotary


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
    """Rotate the last numbers of each head's query, and cache each token's latent, normed, with its rotated key.

    Where a latent is not finite, its numbers become 0 and the key behind it NaN: `write_kv` says why.
    Args: q [T, heads, plain + rotary], whose rotated part is written to that of `out` [T, heads, rank + rotary]; kv
    [T, rank + rotary], latents and keys; weight [rank]; `rotary` of all positions, positions [T] int64, slots [T]
    int64. `interleaved`: pairs that turn lie side by side in q and kv; in results they are always half-split.
    """
    rank, turns = len(weight), rotary.at(positions)
    size = kv.shape[1] - rank
    out[..., rank:] = apply_rope(_half_split(q[..., -size:], interleaved=interleaved), turns)
    latent = rms_norm(kv[:, :rank], weight, eps)
    key = apply_rope(_half_split(kv[:, None, rank:], interleaved=interleaved), turns).squeeze(1)
    key = key + (key * 0 + (latent * 0).sum(-1, keepdim=True))
    kept = torch.cat((latent.nan_to_num(0.0, 0.0, 0.0), key), -1)
    write_slots(kept[:, None], cache.keys, slots)


def _half_split(x: Tensor, *, interleaved: bool) -> Tensor:
    return x.unflatten(-1, (-1, 2)).transpose(-1, -2).flatten(-2) if interleaved else x
