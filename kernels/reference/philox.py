"""Philox 4x32-10: the counter-based generator of Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3" (2011).

Words are 32-bit and kept in int64 tensors: a 64-bit product that overflows int64 wraps, which leaves all its bits
right, so shifts and masks read its halves. A kernel on native 32-bit registers gives the same words.
"""

from __future__ import annotations

import torch
from torch import Tensor

Words = tuple[Tensor, Tensor, Tensor, Tensor]

_MASK = 0xFFFF_FFFF
_MULTIPLIERS = (0xD251_1F53, 0xCD9E_8D57)
_WEYL = (0x9E37_79B9, 0xBB67_AE85)  # the golden ratio and sqrt(3) - 1
_ROUNDS = 10


def philox(counter: Words, key: tuple[Tensor, Tensor]) -> Words:
    """Four random words for each counter; all tensors int64 in [0, 2**32), broadcast against each other."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(_ROUNDS):
        p0, p1 = c0 * _MULTIPLIERS[0], c2 * _MULTIPLIERS[1]
        c0, c2 = (p1 >> 32) & _MASK ^ c1 ^ k0, (p0 >> 32) & _MASK ^ c3 ^ k1
        c1, c3 = p1 & _MASK, p0 & _MASK
        k0, k1 = k0 + _WEYL[0] & _MASK, k1 + _WEYL[1] & _MASK
    return c0, c1, c2, c3


def token_words(seeds: Tensor, positions: Tensor, tokens: Tensor) -> Tensor:
    """The random word of each (seed, position, token).

    Args: seeds [R] int64 in [0, 2**63), positions [R] int64, tokens [R, C] int64. Returns [R, C] int64 in [0, 2**32).
    The key is the seed, the counter (token // 4, position, 0, 0), the word number token % 4 of the four.
    """
    words = philox(_counter(positions, tokens >> 2), _key(seeds))
    lane = tokens & 3
    return torch.where(lane < 2, torch.where(lane == 0, *words[:2]), torch.where(lane == 2, *words[2:]))


def vocabulary_words(seeds: Tensor, positions: Tensor, vocab_size: int) -> Tensor:
    """`token_words` of tokens 0 to `vocab_size` - 1, at a quarter of the work. Returns [R, vocab_size] int64."""
    quads = torch.arange(-(-vocab_size // 4), device=seeds.device)
    words = philox(_counter(positions, quads[None]), _key(seeds))
    return torch.stack(words, dim=-1).flatten(1)[:, :vocab_size]


def _counter(positions: Tensor, quads: Tensor) -> Words:
    zero = torch.zeros((), dtype=torch.int64, device=quads.device)
    return quads, positions[:, None] & _MASK, zero, zero


def _key(seeds: Tensor) -> tuple[Tensor, Tensor]:
    return seeds[:, None] & _MASK, (seeds >> 32)[:, None] & _MASK
