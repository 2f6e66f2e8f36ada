"""What the sampling kernels share: reading a row's scores tile by tile, and finding the best token of a tile.

A tile is LINES lines of LINE adjacent tokens; a thread owns whole lines, so sums along them need no exchange.
"""

from __future__ import annotations

import triton
import triton.language as tl

from thothy_ai.kernels.sampling import COLUMNS

_COLUMNS = tl.constexpr(COLUMNS)
_MOST = tl.constexpr(2**31 - 1)


@triton.jit
def parameter(table, row, column: tl.constexpr):
    """One parameter of a row (see kernels/sampling.py for the columns), float64."""
    return tl.load(table + row * _COLUMNS + column)


@triton.jit
def load_scores(logits, allowed, seen, penalty, first, vocab, LINE: tl.constexpr):
    """A row's penalized and masked logits of tokens first[n] + 0 to LINE - 1, [N, LINE] float32; -inf past the end.

    `allowed` and `seen` are the row's bits, or None; first [N] are multiples of LINE, and LINE divides 32.
    """
    token = first[:, None] + tl.arange(0, LINE)[None, :]
    scores = tl.load(logits + token, mask=token < vocab, other=float("-inf")).to(tl.float32)
    if seen is not None:
        was_seen = _bits(seen, first, token, vocab)
        scores = tl.where(was_seen, tl.where(scores < 0, scores * penalty, scores / penalty), scores)
    if allowed is not None:
        scores = tl.where(_bits(allowed, first, token, vocab), scores, float("-inf"))
    return scores


@triton.jit
def _bits(words, first, token, vocab):
    word = tl.load(words + first // 32, mask=first < vocab, other=0)
    return ((word[:, None] >> (token & 31)) & 1) != 0


@triton.jit
def first_best(values, tokens):
    """The highest value of a tile, and the lowest token that has it."""
    best = tl.max(values)
    return best, tl.min(tl.where(values == best, tokens, _MOST))
