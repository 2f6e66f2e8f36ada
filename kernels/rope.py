"""Rotary position embedding (Su et al., 2021) in the half-split layout, and the write into the paged KV cache."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor


class Rotary(NamedTuple):
    """Cosines and sines, each [N, head_dim / 2] float32: of all positions, or of a step's tokens."""

    cos: Tensor
    sin: Tensor

    def at(self, positions: Tensor) -> Rotary:
        """Those of positions [T]."""
        return Rotary(self.cos.index_select(0, positions), self.sin.index_select(0, positions))


def rotary_table(inverse_frequencies: Sequence[float], scaling: float, length: int, device: torch.device) -> Rotary:
    """The table of positions [0, length). `scaling` multiplies both (YaRN's attention factor; 1 otherwise)."""
    frequencies = torch.tensor(inverse_frequencies, dtype=torch.float32, device=device)
    angles = torch.arange(length, dtype=torch.float32, device=device)[:, None] * frequencies
    return Rotary(angles.cos() * scaling, angles.sin() * scaling)


def apply_rope(x: Tensor, rotary: Rotary) -> Tensor:
    """Rotate each head of x [T, heads, head_dim], in float32; dimension i turns with i + head_dim / 2."""
    cos, sin = rotary.cos[:, None], rotary.sin[:, None]
    first, second = x.float().chunk(2, dim=-1)
    rotated = torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)
    return rotated.to(x.dtype)


def write_kv(k: Tensor, v: Tensor, k_cache: Tensor, v_cache: Tensor, slots: Tensor) -> None:
    """Write k and v [T, kv_heads, head_dim] into the caches at slots [T] int64 (block * block_size + offset)."""
    k_cache.flatten(0, 1).index_copy_(0, slots, k)
    v_cache.flatten(0, 1).index_copy_(0, slots, v)
