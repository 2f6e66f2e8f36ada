"""Cosines and sines of rotary position embedding (Su et al., 2021)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor


class QKNorm(NamedTuple):
    """Weights [head_dim] of the norm over each head's queries and keys, and over its values if there is one."""

    query: Tensor
    key: Tensor
    value: Tensor | None = None


class Rotary(NamedTuple):
    """Cosines and sines, each [N, pairs] float32: of all positions, or of a step's tokens.

    Of each head the first 2 * pairs dimensions turn, which are all of them unless the embedding is partial.
    """

    cos: Tensor
    sin: Tensor

    def at(self, positions: Tensor) -> Rotary:
        return Rotary(self.cos.index_select(0, positions), self.sin.index_select(0, positions))


def rotary_table(inverse_frequencies: Sequence[float], scaling: float, length: int, device: torch.device) -> Rotary:
    """The table of positions [0, length). `scaling` multiplies both (YaRN's attention factor; 1 otherwise)."""
    if device.type == "meta":  # otherwise torch spends a second on importing its compiler
        return Rotary(*torch.empty(2, length, len(inverse_frequencies), device=device))
    frequencies = torch.tensor(inverse_frequencies, dtype=torch.float32, device=device)
    angles = torch.arange(length, dtype=torch.float32, device=device)[:, None] * frequencies
    return Rotary(angles.cos() * scaling, angles.sin() * scaling)
