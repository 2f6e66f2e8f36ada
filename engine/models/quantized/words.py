"""Small integers packed into int32 words, lowest bits first."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def unpacked(words: Tensor, bits: int, order: Sequence[int] = ()) -> Tensor:
    """words [A, B] int32 -> [A, B * 32 / bits] uint8; of each word, number order[i] comes i-th, or number i."""
    if words.is_meta:
        return words.new_empty(len(words), words.shape[1] * 32 // bits, dtype=torch.uint8)
    mask = (1 << bits) - 1
    fields = [((words >> (bits * place)) & mask).to(torch.uint8) for place in order or range(32 // bits)]
    return torch.stack(fields, dim=2).flatten(1)
